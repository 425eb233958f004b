"""Where the tests find the project and its build."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("REPRISE_BUILD", ROOT / "build")).resolve()
FIXTURES = ROOT / "tests" / "fixtures"
