import subprocess
import sys

LOOK = """
import gc, sys
during = gc.isenabled(), sys.modules.get("rfc3987_syntax", "")
def test_it():
    assert during == (False, None)
    assert gc.isenabled() and gc.get_freeze_count() > 10_000
"""


def test_no_garbage_is_looked_for_until_the_tests_begin(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    file = tmp_path / "test_look.py"
    file.write_text(LOOK)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.quick_start", "-c", str(tmp_path / "pytest.ini"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
