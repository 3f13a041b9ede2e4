"""What an agent reads of its handoff: the text, within its own budget, and what lies beside it."""

from functools import cached_property
from pathlib import Path

from batonbus.rules.budget import (
    CountTokens,
    Fitted,
    OverBudgetError,
    Reference,
    fit,
    reference_tokens,
)
from batonbus.rules.errors import BatonbusError, Refuse
from batonbus.rules.policy import Budget, Policy
from batonbus.run.contents import hide_from_git
from batonbus_schemas import AgentCard, Delivery, TextForm, TextSize, render
from batonbus_schemas.counts import counted


class ReferencesNotWrittenError(BatonbusError):
    """What was taken out of an assignment cannot be written beside it."""


class Assignment:
    """The text of one handoff for one agent. `fitted` is None where the whole text fits: then it is
    made when it is asked for."""

    def __init__(self, delivery: Delivery, form: TextForm, fitted: Fitted | None) -> None:
        self._delivery = delivery
        self.form: TextForm = form
        self._fitted = fitted

    @cached_property
    def text(self) -> str:
        """What a command is given, and a person can read."""
        if self._fitted is not None:
            return self._fitted.text
        return render(self._delivery.envelope, self._delivery.window, self.form)

    @property
    def references(self) -> tuple[Reference, ...]:
        """What was taken out of the text, by the relative paths that it names."""
        return self._fitted.references if self._fitted else ()

    def lay_out(self, folder: Path) -> None:
        """Write the references below a folder, at their paths; git does not show them. Raises
        ReferencesNotWrittenError."""
        try:
            for reference in self.references:
                path = folder / reference.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(reference.text, encoding="utf-8")
                hide_from_git(folder / Path(reference.path).parts[0])
        except OSError as error:
            raise ReferencesNotWrittenError(
                f"{counted(len(self.references), 'text')} that the assignment refers to cannot be "
                f"written below {folder} ({error}): start the agent in a folder where it may write"
            ) from error


def make_assignment(
    delivery: Delivery,
    card: AgentCard,
    policy: Policy,
    count_tokens: CountTokens = reference_tokens,
) -> Assignment:
    """The assignment within the limits of this very agent, which may be stricter than those that
    were known when it was delivered, by its own count of tokens too. Raises Refuse where it is too
    long for it or cannot be written, and what `count_tokens` raises."""
    budget, form = policy.limits_of(card).budget, card.text_form
    is_exact = count_tokens is not reference_tokens
    if not is_exact and _is_whole(delivery.size, budget, form):
        return Assignment(delivery, form, None)

    def stricter(text: str) -> int:
        return max(count_tokens(text), reference_tokens(text))

    count = stricter if is_exact else reference_tokens
    try:
        fitted = fit(delivery.envelope, delivery.window, budget, form, count)
    except (OverBudgetError, ValueError) as error:
        raise Refuse(f"agent {card.id} cannot be given it: {error}") from error
    return Assignment(delivery, form, fitted)


def _is_whole(size: TextSize | None, budget: Budget, form: TextForm) -> bool:
    """Whether the window manager found that nothing has to be taken out."""
    return (
        size is not None
        and (size.form, size.steps) == (form, ())
        and size.characters <= budget.characters
        and size.tokens <= budget.tokens
    )
