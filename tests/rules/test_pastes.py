"""Five things that an assignment should refer to instead of pasting them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.pastes import (
    SHARED_LIMIT,
    find_copies,
    find_pastes,
    named_files,
    passages_of,
)
from batonbus_schemas import Body, Dispatch, Envelope, HandoffV1, PreviousResult, Question

ID = UUID("6f1c3a52-9d5e-4a7b-8b3c-2f4d5e6a7b8c")


def envelope(body: Body, *, task: str | None = "TASK-02", work: str = "WORK-01") -> Envelope:
    return Envelope(id=ID, sender="scheduler", to="builder", work=work, task=task, body=body)


def dispatch(brief: str = "Mend it.", **fields: object) -> Envelope:
    return envelope(Dispatch(**{"brief": brief, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "User: please mend it\nAssistant: I will.\n",
        "**Human:** a\n\n**AI:** b",
        "> [user]: a\n> [assistant]: b",
        '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]',
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>",
        "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>",
        "<|start_header_id|>user<|end_header_id|>\na<|start_header_id|>assistant<|end_header_id|>",
        "[INST] a [/INST] b",
        "## User\na\n## Assistant\nb",
        "[12:03] User: a\n[12:04] Assistant: b",
        "2026-01-01T10:00:00Z user: a\n2026-01-01T10:00:09Z assistant: b",
        "user (12:03): a\nassistant (12:04): b",
        "1. User: a\n2. Assistant: b",
        "👤 User: a\n🤖 Assistant: b",
        "You: a\nChatGPT: b",
        "Human: a\nClaude: b",
        "User: a\nUser: b",
        "user: a\nAgent: b",
        "사용자: a\n어시스턴트: b",
        "Пользователь: a\nАссистент: b",
        "User：a\nAssistant：b",
        "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]",
        "- role: user\n  content: a\n- role: assistant\n  content: b",
        '<message role="user">a</message><message role="assistant">b</message>',
        '{"type":"user","message":{}}\n{"type":"assistant","message":{}}',
    ],
)
def test_a_conversation_is_found(text: str) -> None:
    (found,) = find_pastes(dispatch(text))
    assert found.path == "$.body.brief"
    assert "conversation" in found.problem


@pytest.mark.parametrize(
    "text",
    [
        "User: is the name of the table.",
        "The user: a person.\nThe assistant: a program.",
        "The account:\nuser: reader\nsystem: linux",
        "Add a field `role: string` and the endpoint /user.",
        "Show the agent and the tool.",
        "user: ada\nagent: builder",
        "model: opus\nuser: ada",
        "user: str = ''\nmodel: str = ''\nuser: int\nmodel: int",
        "services:\n  user:\n    image: a\n  agent:\n    image: b",
        "user: ada\nuser: bob",
        "Login as a user, then ask: the assistant helps.",
        "| type: user | role: admin |\n| type: user | role: reader |",
        "## User\nWho reads.\n## System\nWhat answers.",
    ],
)
def test_a_text_that_only_names_a_role_is_no_conversation(text: str) -> None:
    assert find_pastes(dispatch(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  claude:\n    user: 1000\n  codex:\n    user: 1000\n",
        "## User\n\nHas a name.\n\n## Model\n\nHas a user.\n",
        "role=user may read, role=agent may write",
        '[{"type": "user"}, {"type": "agent"}]',
    ],
)
def test_what_is_called_as_one_who_speaks_is_no_conversation(text: str) -> None:
    assert find_pastes(dispatch(text)) == []


def test_what_also_stands_in_a_referenced_file_is_found() -> None:
    history = "".join(f"{number}: what happened then.\n" for number in range(60))
    pasted = Dispatch(brief="See:\n" + history[35 : 35 + SHARED_LIMIT])
    (found,) = find_copies(pasted, {"works/WORK-01/TASK-01.md": history})
    assert f"pastes {SHARED_LIMIT} characters" in found.problem
    assert "works/WORK-01/TASK-01.md" in found.problem
    shorter = Dispatch(brief="See:\n" + history[35 : 35 + SHARED_LIMIT - 1] + "!")
    assert find_copies(shorter, {"TASK-01.md": history}) == []


@pytest.mark.parametrize("mark", ["> ", "    ", "\t", "| "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_copy_that_is_quoted_is_one(mark: str, end: str) -> None:
    history = "".join(f"{number}: what happened then.\n" for number in range(60))
    quoted = end.join(f"{mark}{line}" for line in history[:700].split("\n"))
    assert len(find_copies(Dispatch(brief=f"See:\n{quoted}"), {"a.md": history})) == 1


@given(st.text("ab", max_size=700), st.text("ab", max_size=300), st.text("ab", max_size=300))
def test_a_copy_is_found_wherever_it_stands(copied: str, before: str, after: str) -> None:
    found = find_copies(Dispatch(brief=f".{before}{copied}"), {"a.md": f"{copied}{after}"})
    assert bool(found) or len(copied) < SHARED_LIMIT


def test_texts_that_say_the_same_again_and_again_are_compared_quickly() -> None:
    """The search looks at each place of a file once, whatever stands there."""
    pattern = "-" * (SHARED_LIMIT - 1)
    assert find_copies(Dispatch(brief=f"{pattern}=" * 100), {"a.md": f"{pattern}+" * 300}) == []


def test_a_boundary_may_list_the_files_as_the_plan_does() -> None:
    files = ", ".join(f"src/module_{number}.py" for number in range(40))
    body = Dispatch(brief="Build it.", permission_boundary=f"Edit only {files}.")
    assert find_copies(body, {"works/WORK-01/PLAN.md": f"- **Files**: {files}"}) == []


def test_only_files_below_the_senders_folder_are_compared() -> None:
    body = Dispatch(
        brief="x", task_file="works/W/TASK-01.md", refs=("a.md", "a.md", "../b.md", "/c.md", "~/d")
    )
    assert named_files(body) == ("works/W/TASK-01.md", "a.md")


def test_a_passage_of_another_tasks_dispatch_is_found() -> None:
    skill = "Always write the test first, then the code, then read both again. " * 4
    first = envelope(Dispatch(brief=f"One.\n\n{skill}"), task="TASK-01")
    (found,) = find_pastes(dispatch(f"Two.\n\n{skill}"), passages=passages_of(first))
    assert "TASK-01" in found.problem


def test_a_rebuild_and_a_boundary_may_say_the_same_again() -> None:
    text = "Only files under src/ may be changed, and nothing else in the repository. " * 4
    first = dispatch(text, permission_boundary=text)
    assert find_pastes(dispatch(text), passages=passages_of(first)) == []
    other = envelope(Dispatch(brief="Three.", permission_boundary=text), task="TASK-03")
    assert find_pastes(other, passages=passages_of(dispatch("x", permission_boundary=text))) == []


def test_what_every_task_is_told_of_another_is_no_repetition() -> None:
    told = PreviousResult(task="TASK-01", status="PASS", summary="What it did. " * 20)
    first = envelope(Dispatch(brief="One.", previous_results=(told,)), task="TASK-02")
    second = envelope(Dispatch(brief="Two.", previous_results=(told,)), task="TASK-03")
    assert find_pastes(second, passages=passages_of(first)) == []


def test_only_dispatches_of_a_work_are_compared() -> None:
    text = "Only files under src/ may be changed, and nothing else in the repository. " * 4
    assert passages_of(envelope(Dispatch(brief=text), work="adhoc")) == {}
    assert passages_of(envelope(Question(text=text))) == {}


def contract(memory: list[dict[str, str]]) -> Envelope:
    document = {
        "handoff_id": str(ID),
        "from_agent": {"agent_id": "a", "runtime": "claude"},
        "to_agent": {"agent_id": "builder"},
        "objective": {"goal": "Mend it."},
        "bundle": {"memory": memory},
    }
    return envelope(HandoffV1(document=document))


def test_a_memory_without_its_source_is_found() -> None:
    entries = [
        {"key": "a", "summary": "It is slow.", "provenance": "run-1"},
        {"key": "b", "summary": "It is red."},
    ]
    (found,) = find_pastes(contract(entries))
    assert found.path == "$.body.document.bundle.memory[1].provenance"
    assert find_pastes(contract(entries[:1])) == []


@pytest.mark.parametrize(
    "reference",
    ["/etc/passwd", "../other/notes.md", "works/WORK-02/PLAN.md", "~/notes.md", "src/../../x"],
)
def test_a_reference_out_of_the_works_folder_is_found(reference: str) -> None:
    (found,) = find_pastes(dispatch(refs=("works/WORK-01/TASK-02.md", reference)))
    assert found.path == "$.body.refs[1]"


def test_a_short_assignment_with_references_pastes_nothing() -> None:
    good = dispatch(refs=("works/WORK-01/TASK-02.md", "context-pack.json"), skills=("testing",))
    assert find_pastes(good) == []


@pytest.mark.parametrize(
    "reference",
    [
        "file:///etc/passwd",
        "$HOME/.ssh/id_rsa",
        "~/notes.md",
        "C:\\Users\\me\\notes.md",
        "..\\other\\notes.md",
        "/home/me/notes.md",
        "works/WORK-02/PLAN.md",
        "Works/WORK-02/PLAN.md",
        "works\\WORK-02\\PLAN.md",
        " /etc/passwd",
        "s3://private/notes.md",
        "git@example.org:them/notes.git",
    ],
)
@pytest.mark.parametrize("field", ["refs", "task_file", "plan_file"])
def test_a_file_of_somebody_else_is_found_wherever_it_is_named(field: str, reference: str) -> None:
    named = (reference,) if field == "refs" else reference
    (found,) = find_pastes(dispatch(**{field: named}))
    assert found.path.startswith(f"$.body.{field}")
