"""vLLM on CPUs under Ray, for tests: the CPU platform knows no resource of Ray and takes all ranks for one host."""

from __future__ import annotations

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.platforms.cpu import CpuPlatform


class AcrossHosts(CpuCommunicator):
    def _all_group_ranks_share_shm_group_name(self):
        return False


class CpuRayPlatform(CpuPlatform):
    ray_device_key = "GPU"  # Ray believes --num-gpus

    @classmethod
    def device_control_id_to_physical_device_id(cls, device_id):
        return int(device_id)

    @classmethod
    def get_device_communicator_cls(cls):
        return "cpuray_platform.AcrossHosts"


def register():
    return "cpuray_platform.CpuRayPlatform"
