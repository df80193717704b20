"""What is wrong with what a person has typed."""

from textual.widgets import Static

from hubbub_frontend.display.text import safe_text


class InputProblem(Static):
    """One problem, at a field or below a form; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__(classes="problem", markup=False)
        self.display = False

    def set_problem(self, problem: str, limit: int = 1000) -> None:
        """Show a problem, at most `limit` characters of it; an empty text hides this widget."""
        self.update(f"✗ {safe_text(problem, limit)}" if problem else "")
        self.display = bool(problem)
