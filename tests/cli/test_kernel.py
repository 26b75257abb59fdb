"""`dtlearn kernel install`, and the kernel that it installs: the first cell may use a magic of the course."""

import sys

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from dtlearn.cli import kernel, main
from dtlearn.runtime.errors import LaunchError
from tests.notebook.kernel import Notebook


@pytest.fixture
def installed(tmp_path, capsys):
    """A manager that knows what was installed under a prefix."""
    assert main(["kernel", "install", "--prefix", str(tmp_path / "hub")]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "hub/share/jupyter/kernels"
    assert f"is in {folder}/dtlearn; it runs {sys.executable}." in said and "Choose it as the kernel" in said
    return KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)


def test_the_first_cell_may_use_a_magic_of_the_course(installed, tmp_path):
    notebook = Notebook(tmp_path, kernel_name="dtlearn", kernel_spec_manager=installed)
    try:
        unknown = notebook.run("%%exercise ch01.nothing\nx = 1")
        assert "there is no exercise 'ch01.nothing'" in unknown.text("stderr") + unknown.text("error")
        assert "[0] 0\n[1] 1\n" in notebook.run("%%ranks\nprint(rank)").text("stdout")
        again = notebook.run("%load_ext dtlearn")
        assert again.ok and again.outputs == []  # not "already loaded"
    finally:
        notebook.close()


def test_it_is_installed_for_the_user_and_a_second_time(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    for _ in range(2):
        assert main(["kernel", "install"]) == 0
    spec = KernelSpecManager(kernel_dirs=[str(tmp_path / "kernels")]).get_kernel_spec("dtlearn")
    assert spec.display_name == kernel.SHOWN and spec.argv[0] == sys.executable


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["kernel", "install", "--prefix", str(tmp_path / "file")]) == 1
    assert "dtlearn kernel: the kernel was not installed: " in capsys.readouterr().err
    with pytest.raises(LaunchError, match=f"{tmp_path}/file.*: Not a directory"):
        kernel.kernels_of_lab({"JUPYTER_RUNTIME_DIR": str(tmp_path / "file")})


def test_the_kernel_of_a_lab_is_that_of_this_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel.sys, "prefix", "/a/venv")
    folder = kernel.kernels_of_lab({"JUPYTER_RUNTIME_DIR": str(tmp_path)})
    assert folder == f"{tmp_path}/dtlearn-a-venv"
    spec = KernelSpecManager(kernel_dirs=[f"{folder}/kernels"]).get_kernel_spec("python3")
    assert spec.argv[-1] == "--ext=dtlearn.notebook"
