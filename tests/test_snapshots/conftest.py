import pytest

from tests.test_snapshots.places import memory_place, os_place


@pytest.fixture(params=["os", "memory"])
def place(request, tmp_path):
    return os_place(tmp_path) if request.param == "os" else memory_place()
