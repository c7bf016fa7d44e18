"""The mask of a bundle: same shape, consistent, subnets stay subnets, and what is nobody's stays."""

from __future__ import annotations

import ipaddress

import pytest
import smi
from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.probe import gpus, network
from llmgwctl.probe.base import Output
from llmgwctl.probe.mask import Mask

KEY = b"k" * 32
V4 = st.ip_addresses(v=4).map(str)
V6 = st.ip_addresses(v=6)


def masked(text: str, key: bytes = KEY) -> str:
    return Mask(key).text(text)


@pytest.mark.parametrize(
    "text",
    [
        "GPU-11111111-2222-3333-4444-0000000000ab",
        "    Serial Number                         : 1650224000123",
        "        Chassis Serial Number             : 1820000000042",
        "<serial>1650224000123</serial>",
        "        GPU Fabric GUID                   : 0xabcdef0123456789",
        "is node_guid a088:c203:00ab:cdef",
        "link/ether b8:3f:d2:ab:01:02 brd x",
        "2: eno1    inet 10.1.1.7/24 brd 10.1.1.255 scope global eno1",
        "gid 3 0000:0000:0000:0000:0000:ffff:0a01:0107 eth0 RoCE v2",
        "listen 0701010A:1F90",
    ],
)
def test_ids_become_others_of_their_shape(text):
    """Letters for letters, digits for digits, as long as before; another key gives another mask."""
    found = masked(text)
    assert found != text
    assert found == masked(text)
    assert found != masked(text, b"j" * 32)
    if "inet" not in text:
        assert len(found) == len(text)
    assert found.split(" ")[0].split("-")[0] == text.split(" ")[0].split("-")[0] or "<" in text


@pytest.mark.parametrize(
    "text",
    [
        "00000000-0000-0000-0000-000000000000",
        "GPU Fabric GUID : 0x0000000000000000",
        "Serial Number : N/A",
        "<serial>N/A</serial>",
        "inet 127.0.0.1/8 scope host lo",
        "default via 0.0.0.0",
        "::1 and ::",
        "Driver Version : 580.126.09",
        "Bus Id : 00000008:06:00.0 and 0009:01:00.0 and NVRM: Xid (PCI:0009:01:00): 79",
        "12/1/2026 04:33:38.099",
        "28.43.2026 and 580.95.05.01",
        "ipv6:%5B::1%5D:50005: Connection refused",
        "10.0",
        "",
    ],
)
def test_what_is_nobodys_stays(text):
    assert masked(text) == text


@given(V4, V4)
def test_common_prefixes_stay_common(a, b):
    """Two addresses share as many first bits after the mask as before: subnets, rails and routes hold."""
    mask = Mask(KEY)
    one, other = (int(ipaddress.IPv4Address(x)) for x in (a, b))
    if any(not _somebodys(x) for x in (a, b)):
        return
    x, y = (int(ipaddress.IPv4Address(mask.text(t))) for t in (a, b))
    assert (one ^ other).bit_length() == (x ^ y).bit_length()
    assert x >> 24 == one >> 24


def _somebodys(text: str) -> bool:
    address = ipaddress.IPv4Address(text)
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or int(address) >> 24 in (0, *range(224, 256))
    )


@given(V6, V6)
def test_common_prefixes_of_ipv6(a, b):
    mask = Mask(KEY)
    odd = [x for x in (a, b) if x.is_loopback or x.is_unspecified or x.is_multicast or x.is_link_local or x.ipv4_mapped]
    if odd:
        return
    x, y = (int(ipaddress.IPv6Address(mask.text(str(t)))) for t in (a, b))
    assert (int(a) ^ int(b)).bit_length() == (x ^ y).bit_length()


def test_one_address_in_all_its_spellings():
    """10.1.1.7 is the same other address as text, in a GID, in /proc/net/route and in /proc/net/tcp."""
    mask = Mask(KEY)
    there = ipaddress.IPv4Address(mask.text("10.1.1.7"))
    gid = mask.text("0000:0000:0000:0000:0000:ffff:0a01:0107")
    assert ipaddress.IPv6Address(gid).ipv4_mapped == there
    little = there.packed[::-1].hex().upper()
    assert mask.text("listen 0701010A:1F90") == f"listen {little}:1F90"
    assert mask.text("proc route eth0\t0701010A\t00000000\t0001") == f"proc route eth0\t{little}\t00000000\t0001"
    assert mask.text("listen 0000000000000000FFFF00000701010A:1F90") == f"listen 0000000000000000FFFF0000{little}:1F90"
    six = mask.text("fd01::7")
    packed = ipaddress.IPv6Address(six).packed.hex()
    assert mask.text("proc if_inet6 fd010000000000000000000000000007 02 40 00 80 eno1").split()[2] == packed


def test_a_masked_network_reads_alike():
    """Interfaces, routes and the way to a peer are the same, by other addresses."""
    said = (
        "reached 10.1.1.7\nlink eno1 up 0x1003 1500\n"
        "addr 2: eno1    inet 10.1.1.7/24 brd 10.1.1.255 scope global eno1\n"
        "route4 default via 10.1.1.1 dev eno1 src 10.1.1.7\nroute4 10.1.1.0/24 dev eno1 scope link src 10.1.1.7\n"
    )
    mask = Mask(KEY)
    plain, other = (network.PROBE.read({"network": Output(t)}).value for t in (said, mask.text(said)))
    assert other.route_to(mask.text("10.1.1.9")) == ("eno1", mask.text("10.1.1.7"))
    assert plain.route_to("10.1.1.9") == ("eno1", "10.1.1.7")
    assert other.interface_with(other.reached_at).name == "eno1"


@pytest.mark.parametrize("driver", smi.DRIVERS)
@pytest.mark.parametrize("form", [smi.text, smi.xml])
def test_a_masked_report_reads_alike(driver, form):
    """Every driver's report, text and XML: the same GPUs by other names, and one domain stays one."""
    mask = Mask(KEY)
    plain, other = (
        gpus.PROBE.read({"nvidia-smi-q": Output(t)}).value
        for t in (form(driver, smi.trays()), mask.text(form(driver, smi.trays())))
    )
    assert [g.bus_id for g in plain.gpus] == [g.bus_id for g in other.gpus]
    assert [g.fabric.joined for g in plain.gpus] == [g.fabric.joined for g in other.gpus]
    assert len({g.fabric.pair for g in other.gpus}) == 1
    assert not {g.uuid for g in plain.gpus} & {g.uuid for g in other.gpus}
    assert all(a.platform.tray == b.platform.tray for a, b in zip(plain.gpus, other.gpus, strict=True))


def test_names_of_hosts_and_people():
    """Whole names alone, the longest first; operators and accounts by shape."""
    mask = Mask(KEY, {"r1-t1": "host-0001", "r1-t10": "host-0002"})
    assert mask.text("node r1-t10 r1-t1 r1-t100 xr1-t1") == "node host-0002 host-0001 r1-t100 xr1-t1"
    life = mask.text("account anna\nclaim gpu-x owner=anna\n  operator=anna\nuser 1001 anna\n")
    assert "anna" not in life
    assert len(life) == len("account anna\nclaim gpu-x owner=anna\n  operator=anna\nuser 1001 anna\n")
    assert Mask(KEY).text("account anna") == "account anna"


@given(st.text(alphabet=st.sampled_from("0123456789abcdefABCDEF:.-x% \nSerial Number<>/"), max_size=200))
def test_any_text_can_be_masked(text):
    """Total, and with as many lines as before."""
    assert masked(text).count("\n") == text.count("\n")
