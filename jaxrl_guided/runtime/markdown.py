"""Tables of results as Markdown, for summaries of runs and for README."""

from collections.abc import Mapping, Sequence
from typing import Any


def number(value: float | None) -> str:
    """A number for people: three significant digits, thousands separated."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def measure(name: str, values: Sequence[float]) -> tuple[str, list[float]]:
    """What a row is called and holds: shares of success are shown in per cent."""
    if "success" in name:
        return f"{name} [%]", [100 * value for value in values]
    return name, list(values)


def verdict(met: bool | None) -> str:
    """`yes`, `no` or nothing."""
    return {True: "yes", False: "no", None: ""}[met]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return verdict(value)
    if value is None or isinstance(value, int | float):
        return number(value)
    return str(value)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table of texts and numbers, escaped.

    Raises:
      ValueError: a row has not as many values as there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"row {row} has {len(row)} values for {len(columns)} columns")
    lines = [columns, ["---"] * len(columns), *rows]
    texts = [[_text(value) for value in line] for line in lines]
    return "".join(
        "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in line) + " |\n"
        for line in texts
    )


def origin(record: Mapping[str, Any]) -> str:
    """Where a record with `versions.snapshot()` comes from: date, machine, JAX's version.

    One made of cells has their `revisions`, too: they ran before it was made.
    """
    if record.get("revisions"):
        short = sorted({revision[:7] for revision in record["revisions"]})
        made = f"Table made on {record['date']}, {record['cpu']}, jax {record['packages']['jax']}"
        return f"{made}; its cells ran at revision{'s' * (len(short) > 1)} {', '.join(short)}."
    machine = f"{record['cpu']}, {record['cores']} cores, {', '.join(record['devices'])}"
    return f"{record['date']}, {machine}, jax {record['packages']['jax']}."


def results_text(record: Mapping[str, Any]) -> str:
    """The Markdown of an experiment's results, below its title.

    Args:
      record: `first_line`, `columns` and `rows`; if there are any, `answers` (a list of
        sentences), `note` (below the table), `tables` (each `title`, `columns` and `rows`), and
        `date` with `versions.snapshot()`.

    Raises:
      KeyError: a field is missing.
      ValueError: see `markdown_table`.
    """
    parts = [record["first_line"] + "\n"]
    if answers := record.get("answers"):
        parts.append("".join(f"- {answer}\n" for answer in answers))
    parts.append(markdown_table(record["columns"], record["rows"]))
    if note := record.get("note"):
        parts.append(note + "\n")
    for table in record.get("tables", ()):
        parts.append(f"{table['title']}:\n")
        parts.append(markdown_table(table["columns"], table["rows"]))
    if "date" in record:
        parts.append(origin(record) + "\n")
    return "\n".join(parts)
