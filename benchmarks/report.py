"""Regenerates README's tables from `benchmarks/results/*.json`.

A table stands between `<!-- begin:NAME -->` and `<!-- end:NAME -->`, NAME being the file's name
without suffix. Benchmarks have `rows` as `common.Row`; experiments have `title` and what
`markdown.results_text` reads.

    python -m benchmarks.report           # writes README.md
    python -m benchmarks.report --check   # fails when README.md is out of date
"""

import pathlib
import re
from typing import Any

from absl import flags

from benchmarks import common
from jaxrl_guided.runtime import app, files
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.markdown import markdown_table, origin, results_text

README = pathlib.Path(__file__).parents[1] / "README.md"

_README = flags.DEFINE_string("readme", str(README), "Markdown file to update.")
_RESULTS = flags.DEFINE_string("results", str(common.RESULTS), "Directory of the JSON files.")
_CHECK = flags.DEFINE_bool("check", False, "Write nothing; fail when a table is out of date.")

_BLOCK = re.compile(r"(<!-- begin:([\w.-]+) -->\n)(.*?)(<!-- end:\2 -->)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:begin|end):[\w.-]+ -->")


def render(record: dict[str, Any]) -> str:
    """The Markdown of one results file.

    Raises:
      KeyError: a field is missing.
      ValueError: a row has not as many values as there are columns.
    """
    if "columns" not in record:
        rows = [common.table_cells(row) for row in record["rows"]]
        return f"{markdown_table(common.COLUMNS, rows)}\n{_origins(record)}\n"
    return f"**{record['title']}**\n\n{results_text(record)}"


def _origins(record: dict[str, Any]) -> str:
    """Where the rows come from, those that were measured apart by their cases."""
    apart: dict[str, list[str]] = {}
    for row in record["rows"]:
        if "origin" in row:
            cases = apart.setdefault(origin(row["origin"]), [])
            cases += [row["case"]] * (row["case"] not in cases)
    lines = [f"{'; '.join(cases)}: {whence}" for whence, cases in apart.items()]
    return "  \n".join([*lines, f"{'All others: ' if lines else ''}{origin(record)}"])


def _render_file(path: pathlib.Path) -> str:
    record = files.read_json(path)
    try:
        return render(record)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no results file: {type(error).__name__} {error}") from error


def update(text: str, results: pathlib.Path) -> str:
    """Returns the Markdown `text` with every marked block rendered anew.

    A block without a results file says that there is none yet.

    Raises:
      UserError: markers do not pair up, or a results file is damaged.
    """
    blocks = len(_BLOCK.findall(text))
    markers = len(_MARKER.findall(text))
    if markers != 2 * blocks:
        raise UserError(
            f"{markers} table markers make {blocks} pairs; each <!-- begin:NAME --> needs its "
            "<!-- end:NAME -->"
        )

    def replace(match: re.Match[str]) -> str:
        begin, name, _, end = match.groups()
        path = results / f"{name}.json"
        body = _render_file(path) if path.exists() else "*No results yet.*\n"
        return f"{begin}{body}{end}"

    return _BLOCK.sub(replace, text)


def run() -> None:
    """Updates or checks the file."""
    path = pathlib.Path(_README.value)
    try:
        old = path.read_text()
    except OSError as error:
        raise UserError(f"--readme={path} cannot be read: {error.strerror}") from error
    new = update(old, pathlib.Path(_RESULTS.value))
    if _CHECK.value:
        if new != old:
            raise UserError(f"{path} is out of date: run python -m benchmarks.report")
    elif new != old:
        files.write_text(path, new)
        print(f"updated {path}")


if __name__ == "__main__":
    app.main(run)
