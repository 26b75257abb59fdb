import subprocess
from pathlib import Path

import nbval.kernel

from tests.kernel_sockets import SocketKernelManager, pytest_configure


def test_nbvals_kernel_answers_on_sockets_of_its_own(monkeypatch):
    monkeypatch.setattr(nbval.kernel, "KernelManager", nbval.kernel.KernelManager)  # as it was, afterwards
    pytest_configure()
    name = nbval.kernel.CURRENT_ENV_KERNEL_NAME
    manager, client = nbval.kernel.start_new_kernel(kernel_name=name, stderr=subprocess.DEVNULL)
    assert isinstance(manager, SocketKernelManager)
    folder = Path(manager.ip).parent
    try:
        assert [path.is_socket() for path in folder.iterdir()] == [True] * 5
        assert folder.stat().st_mode & 0o077 == 0
        sees_gpu = "import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == ''"  # as who built the notebooks
        assert client.execute_interactive(sees_gpu, timeout=60)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert not folder.exists()
