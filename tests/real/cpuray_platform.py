"""vLLM on a CPU under Ray, for tests alone: the CPU platform knows no resource of Ray, so it borrows that of GPUs."""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class CpuRayPlatform(CpuPlatform):
    ray_device_key = "GPU"

    @classmethod
    def device_control_id_to_physical_device_id(cls, device_id):
        return int(device_id)


def register():
    return "cpuray_platform.CpuRayPlatform"
