"""Rebuilds what is generated: methods.md from the registry, tables from records, gallery.md from examples/.

Usage: python docs/build.py
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = (
    ["docs/generate_methods.py"],
    ["docs/generate_benchmarks.py"],
    ["benchmarks/gpu_speed.py", "--table"],
    ["docs/generate_gallery.py", "--draw"],
)


def main() -> int:
    failed = []
    for script, *options in STEPS:
        print(f"{script} …", flush=True)
        if subprocess.run([sys.executable, str(ROOT / script), *options], cwd=ROOT, check=False).returncode:
            failed.append(script)
    if failed:
        print(f"docs: these scripts failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
