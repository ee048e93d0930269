"""Repairing software as a task in text: a repository, what is wrong with it, and three tools."""

from concurrent.futures import Future, ThreadPoolExecutor

from jaxrl_guided.envs.swe import repository, scoring, tools
from jaxrl_guided.envs.swe.dataset import read_tasks
from jaxrl_guided.envs.swe.instance import Instance
from jaxrl_guided.envs.swe.interpreter import interpreter
from jaxrl_guided.envs.swe.sandbox import WORK, Limits, Sandbox, check_sandbox
from jaxrl_guided.envs.text.task import TASK, Opening, Reply

SYSTEM = f"""\
You repair software. The repository is in {WORK}; you see no network, and only what you change there
stays. Repair the source: changes of tests and of configuration do not count.
{tools.HOW}"""


def observation_of(instance: Instance) -> str:
    """The first message of an episode."""
    return f"{instance.problem.strip()}\n\nRepair this in {WORK}."


class SweText:
    """Repairs one repository after the other; the return is 1 if all tests pass then, else 0.

    Only what is submitted is scored.

    Args:
      tasks: file of JSON lines with the fields of SWE-Bench, as `experiments.make_swe_tasks` writes
        it.
      repos: folder of the repositories; empty: that of the file.
      max_turns: answers in an episode.
      seconds: of a command.
      score_seconds: of all tests together, when they score.
      test_seconds: of a test, when it scores.
      memory_mb: of memory for a command.
      processes: of a command.
      disk_mb: for files.
      output: bytes that are shown of what a command writes.
      python: path of the Python under which tests run; empty: the one that runs this.
      plugins: whether the plugins of pytest that are installed there are loaded for scoring.
      background: commands and tests run while others go on: replies come later.

    Raises:
      ValueError: an option or a line of the file is wrong, or there is no sandbox.
    """

    def __init__(
        self,
        tasks: str,
        repos: str = "",
        max_turns: int = 30,
        seconds: float = 60.0,
        score_seconds: float = 600.0,
        test_seconds: float = 20.0,
        memory_mb: int = 2048,
        processes: int = 64,
        disk_mb: int = 256,
        output: int = 8000,
        python: str = "",
        plugins: bool = True,
        background: bool = False,
    ) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}")
        if not score_seconds >= 0.1:
            raise ValueError(f"score_seconds must be at least 0.1, not {score_seconds}")
        self._limits = Limits(seconds, memory_mb, processes, disk_mb, output)
        scored = Limits(score_seconds, memory_mb, processes, disk_mb, output)
        self._tasks = read_tasks(tasks, repos)
        check_sandbox()
        self._tester = scoring.Tester(interpreter(python), scored, test_seconds, plugins)
        self._pool = ThreadPoolExecutor(1) if background else None
        self._folder: repository.Folder | None = None
        self.max_turns, self.instances = max_turns, len(self._tasks)

    def reset(self, seed: int) -> Opening:
        """Begins with the task of that number, in a fresh repository of one commit."""
        self._leave()
        self._task = self._tasks[seed % len(self._tasks)]
        self._folder = repository.Folder()
        work = self._folder.path
        repository.make_tree(self._task, work)
        repository.commit_all(work)
        python = self._tester.python
        hidden = python.copies_of(scoring.packages_of(work))
        self._sandbox = Sandbox(work, self._limits, python.prefixes, hidden)
        problem = self._task.problem.strip() or self._task.name
        return Opening(SYSTEM, observation_of(self._task), f"Repair: {problem.splitlines()[0]}")

    def step(self, answer: str) -> Reply:
        """One call of a tool, or a note that there was none."""
        call = tools.parse(answer)
        if call is None:
            return Reply(tools.NO_TOOL, acted=False)
        if self._pool is None or isinstance(call, tools.View | tools.Replace):
            return self._reply(call)
        working: Future[Reply] = self._pool.submit(self._reply, call)
        return Reply("", later=lambda: working.result() if working.done() else None)

    def close(self) -> None:
        """Removes the repository."""
        self._leave()
        if self._pool is not None:
            self._pool.shutdown()

    def _reply(self, call: tools.Call) -> Reply:
        if isinstance(call, tools.Bash):
            done = self._sandbox.run(["bash", "-c", call.command])
            return Reply(tools.told(done), role="tool")
        if isinstance(call, tools.Submit):
            solved = self._tester.solves(self._task, self._sandbox.work)
            return Reply("", {TASK: float(solved)}, terminated=True, success=solved, role="tool")
        return Reply(tools.edit(call, self._sandbox), role="tool")

    def _leave(self) -> None:
        """An episode may be left in the middle of a command."""
        if self._pool is not None:
            self._pool.submit(int).result()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
