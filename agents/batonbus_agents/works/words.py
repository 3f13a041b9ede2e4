"""Every word of the works files in en, ko and ja: the one table by which they are read and written.

The first spelling of a row is the one that is written; the others are read as well. Headings are
written in the plan's language, the keys of lines and columns always in English (seed 002's form).
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

Action = Literal["CREATE", "MODIFY", "DELETE"]
K = TypeVar("K", bound=str)
Words = Mapping[str, tuple[str, ...]]

HEADINGS: Mapping[str, Words] = {
    "request": {
        "en": ("Original Request",),
        "ko": ("원본 요청", "원 요청"),
        "ja": ("元の依頼", "元のリクエスト"),
    },
    "functional": {
        "en": ("Functional Requirements",),
        "ko": ("기능 요구사항",),
        "ja": ("機能要件",),
    },
    "non_functional": {
        "en": ("Non-Functional Requirements",),
        "ko": ("비기능 요구사항",),
        "ja": ("非機能要件",),
    },
    "criteria": {
        "en": ("Acceptance Criteria",),
        "ko": ("인수 기준", "완료 조건", "수용 기준"),
        "ja": ("受け入れ基準", "受入基準", "完了条件"),
    },
    "goal": {"en": ("Goal",), "ko": ("목표",), "ja": ("目標", "目的")},
    "graph": {
        "en": ("Task Dependency Graph", "Dependency Graph"),
        "ko": ("Task 의존성 그래프", "의존성 그래프"),
        "ja": ("タスク依存関係グラフ", "依存関係グラフ"),
    },
    "tasks": {
        "en": ("Tasks", "Task List"),
        "ko": ("작업 목록", "Task 목록", "작업"),
        "ja": ("タスク一覧", "タスク"),
    },
    "work": {"en": ("WORK",), "ko": ("WORK", "작업"), "ja": ("WORK", "作業")},
    "dependencies": {
        "en": ("Dependencies",),
        "ko": ("의존관계", "의존성"),
        "ja": ("依存関係",),
    },
    "scope": {
        "en": ("Scope",),
        "ko": ("범위", "구현 범위"),
        "ja": ("範囲", "スコープ"),
    },
    "files": {"en": ("Files",), "ko": ("파일", "대상 파일"), "ja": ("ファイル", "対象ファイル")},
    "verify": {"en": ("Verify",), "ko": ("검증", "검증 방법"), "ja": ("検証", "検証方法")},
    "summary": {"en": ("Summary",), "ko": ("요약",), "ja": ("サマリー", "要約")},
    "checklist": {
        "en": ("Completed Checklist",),
        "ko": ("완료 체크리스트",),
        "ja": ("完了チェックリスト",),
    },
    "verification": {
        "en": ("Verification Results", "Verification"),
        "ko": ("검증 결과", "검증"),
        "ja": ("検証結果", "検証"),
    },
    "files_changed": {
        "en": ("Files Changed",),
        "ko": ("변경 파일", "변경된 파일"),
        "ja": ("変更ファイル",),
    },
    "issues": {
        "en": ("Issues Encountered",),
        "ko": ("발생 이슈",),
        "ja": ("発生した問題",),
    },
    "notes": {
        "en": ("Notes for Subsequent Tasks",),
        "ko": ("후속 TASK 참고사항",),
        "ja": ("後続タスクへの注記",),
    },
    "handoff": {
        "en": ("Context Handoff", "Context-Handoff"),
        "ko": ("컨텍스트 핸드오프",),
        "ja": ("コンテキスト引き継ぎ", "コンテキストハンドオフ"),
    },
}

PLAN_META: Words = {
    "created": ("Created", "생성일", "作成日"),
    "requirement": ("Requirement", "요구사항", "要件"),
    "mode": ("Execution-Mode", "Execution Mode", "실행 모드", "実行モード"),
    "project": ("Project", "프로젝트", "プロジェクト"),
    "tech_stack": ("Tech Stack", "기술 스택", "技術スタック"),
    "language": ("Language", "언어", "言語"),
    "status": ("Status", "상태", "状態", "ステータス"),
}

RESULT_META: Words = {
    "work": ("WORK", "작업", "作業"),
    "completed": ("Completed", "완료", "완료일", "完了", "完了日"),
    "mode": PLAN_META["mode"],
    "status": PLAN_META["status"],
    "commit": ("Commit", "커밋", "コミット"),
}

NEEDS = (
    *("Depends on", "Depends", "Dependencies", "Dependency", "Deps", "Requires", "Prerequisites"),
    *("Blocked by", "의존관계", "의존성", "의존", "선행", "선행 작업"),
    *("依存関係", "依存", "依存先", "前提"),
)

TASK_FIELDS: Words = {
    "needs": NEEDS,
    "scope": ("Scope", "범위", "範囲", "スコープ"),
    "files": ("Files", "파일", "ファイル"),
}

TASK_COLUMNS: Words = {
    "task": ("Task ID", "Task", "ID", "작업 ID", "작업", "タスク ID", "タスクID", "タスク"),
    "title": ("Title", "제목", "タイトル"),
    "needs": NEEDS,
}

FILE_COLUMNS: Words = {
    "path": ("Path", "File", "경로", "파일", "パス", "ファイル"),
    "action": ("Action", "작업", "동작", "操作", "アクション"),
    "description": (
        *("Description", "설명", "변경 사항", "변경 내용"),
        *("説明", "変更内容"),
    ),
}

WORK_COLUMNS: Words = {
    "work": ("WORK", "ID"),
    "title": TASK_COLUMNS["title"],
    "status": PLAN_META["status"],
    "created": PLAN_META["created"],
    "done": ("Done", "Completed", "완료일", "完了日"),
}

PROGRESS_KEYS: Words = {
    "status": PLAN_META["status"],
    "started": ("Started", "시작", "開始"),
    "updated": ("Updated", "Last updated", "갱신", "업데이트", "更新"),
    "files": ("Files changed", "변경 파일", "변경된 파일", "変更ファイル"),
}

CONTEXT_FIELDS: Words = {
    "what": ("what", "무엇", "何を"),
    "why": ("why", "이유", "なぜ", "理由"),
    "caution": ("caution", "주의", "주의사항", "注意", "注意点"),
    "incomplete": ("incomplete", "미완료", "미완", "未完了"),
}

LOG_FIELDS: Words = {
    "phase": ("Phase", "단계", "フェーズ"),
    "did": ("Did", "수행", "実施"),
    "checks": ("Checks", "Checkpoint/tests", "Tests", "검사", "チェック"),
    "next": ("Next", "다음", "次"),
    "context": ("Context", "컨텍스트", "コンテキスト"),
}

ROLES: Words = {
    "builder": ("Builder", "빌더", "ビルダー"),
    "verifier": ("Verifier", "검증자", "検証者", "ベリファイア"),
    "committer": ("Committer", "커미터", "コミッター"),
}

ACTIONS: Mapping[Action, tuple[str, ...]] = {
    "CREATE": ("CREATE", "Created", "Add", "Added", "New", "생성", "추가", "신규", "作成", "追加"),
    "MODIFY": ("MODIFY", "Modified", "Update", "Updated", "Edit", "수정", "변경", "変更", "更新"),
    "DELETE": ("DELETE", "Deleted", "Remove", "Removed", "삭제", "제거", "削除"),
}

_NOTHING = frozenset(
    {
        "",
        "-",
        "–",
        "—",
        "none",
        "n/a",
        "na",
        "nothing",
        "없음",
        "해당 없음",
        "なし",
        "無し",
        "該当なし",
    }
)

FILLERS = frozenset(
    {"after", "and", "then", "is", "required", "done", "complete", "completed", "finished"}
    | {"완료", "완료후", "후", "이후", "후에", "다음", "필요", "필수", "및", "와", "과"}
    | {"完了", "完了後", "後", "の", "の後", "必須", "と", "および"}
)
"""Words that may stand beside the names of dependencies and change nothing."""


def plain(text: str) -> str:
    """A word as it is compared: without emphasis, case, and outer or doubled blanks."""
    return " ".join(text.strip().strip("*`_:\uff1a ").casefold().split())


def is_nothing(text: str) -> bool:
    """Whether a text says that there is nothing: `(none)`, `None`, `—`, `없음`, `なし`."""
    return plain(text.strip("*`_ ").strip("()\uff08\uff09.。")) in _NOTHING


def key_of(text: str, words: Mapping[K, tuple[str, ...]]) -> K | None:
    """The key of the row in which this spelling stands."""
    wanted = plain(text)
    for key, spellings in words.items():
        if any(plain(spelling) == wanted for spelling in spellings):
            return key
    return None


def heading(key: str, language: str) -> str:
    """A heading as it is written in a language; an unknown language is written in English."""
    rows = HEADINGS[key]
    return rows.get(language.casefold().replace("_", "-").split("-")[0], rows["en"])[0]


def is_heading(title: str, key: str) -> bool:
    """Whether a title is this heading, in any language."""
    return key_of(title, HEADINGS[key]) is not None


def action_of(text: str) -> Action | None:
    """CREATE, MODIFY or DELETE, in any spelling of the table."""
    return key_of(text, ACTIONS)
