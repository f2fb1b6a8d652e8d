"""Rebuilds what is generated: docs/methods.md from the registry and the pictures of the gallery in examples/.

Usage: python docs/build.py
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    scripts = [ROOT / "docs" / "generate_methods.py", *sorted((ROOT / "examples").glob("plot_*.py"))]
    failed = []
    for script in scripts:
        print(f"{script.relative_to(ROOT)} …", flush=True)
        if subprocess.run([sys.executable, str(script)], cwd=ROOT, env=environment, check=False).returncode:
            failed.append(script.name)
    if failed:
        print(f"docs: these scripts failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
