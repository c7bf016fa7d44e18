"""nvidia-smi -q of every driver, as text and as XML, healthy, broken and hostile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import smi
from hypothesis import given, settings
from hypothesis import strategies as st
from smi import DRIVERS, Card, trays

from llmgwctl.model.condition import PcieLink, PowerLimits
from llmgwctl.probe import gpus
from llmgwctl.probe.base import NOT_SAVED, Output
from llmgwctl.probe.smi_fabric import fabric_of
from llmgwctl.probe.smi_text import read_text

LOST = "Unable to determine the device handle for GPU1: 0009:01:00.0: GPU is lost.  Reboot the system to recover it"


def read(q: str | Output, query: str | Output = NOT_SAVED, system: str = ""):
    q = Output(stdout=q) if isinstance(q, str) else q
    query = Output(stdout=query) if isinstance(query, str) else query
    return gpus.PROBE.read({"nvidia-smi-q": q, gpus.QUERY: query, "system": Output(stdout=system)})


def report(q, query=NOT_SAVED):
    reading = read(q, query)
    assert reading.ok, reading.why
    return reading.value


def one(card: Card, driver: str = "580.126"):
    return report(smi.text(driver, [card])).gpus[0]


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_gives_the_same_machine(driver):
    """Memory, MIG, place and identity are read whatever the column of the colons is."""
    found = report(smi.text(driver, trays()), smi.query(trays()))
    assert (found.driver, found.cuda, found.attached, found.all_readable) == (driver, "13.0", 4, True)
    assert [g.index for g in found.gpus] == [0, 1, 2, 3]
    gpu = found.gpus[1]
    assert (gpu.uuid, gpu.bus_id, gpu.name) == (Card(1).uuid, "00000009:01:00.0", "NVIDIA GB200")
    assert (gpu.memory_used_mib, gpu.memory_total_mib, gpu.mig_enabled) == (12, 189471, False)
    assert (gpu.minor, gpu.persistence, gpu.compute_mode, gpu.compute_cap) == (1, True, "Default", "10.0")
    assert gpu.recovery_action is None
    assert found.notes == ()


@pytest.mark.parametrize("driver", DRIVERS)
def test_joined_and_healthy_per_driver(driver):
    """Drivers before 550 cannot tell a domain, and before 570 no health (550 prints Bandwidth alone)."""
    fabric = report(smi.text(driver, trays())).gpus[0].fabric
    if smi.release(driver) < (550, 0):
        assert (fabric.joined, fabric.healthy, fabric.pair) == (None, None, None)
    else:
        assert (fabric.joined, fabric.healthy, fabric.pair) == (True, True, (smi.CLUSTER, 32766))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    "card",
    [
        Card(),
        Card(state="In Progress"),
        Card(status="Insufficient Resources", clique="0", cluster=smi.ZERO),
        Card(health={"Summary": "Unhealthy", "Route Unhealthy": "True"}),
        Card(clique="N/A"),
        Card(processes=((42, "C", "/opt/vllm <worker> & co", "1024 MiB"), (43, "C+G", "[Not Found]", "N/A"))),
        Card(uncorrectable="3", recovery="GPU Reset Required", chassis=""),
        Card(total="N/A", used="Not Supported", addressing="N/A"),
        Card(active=("SW Power Cap", "HW Slowdown", "HW Thermal Slowdown"), link=("1", "5", "8x", "16x")),
        Card(power=("N/A",) * 4, repair=("N/A", "N/A"), threshold="N/A", link=("N/A",) * 4),
    ],
    ids=[
        "healthy",
        "in-progress",
        "refused",
        "unhealthy",
        "no-clique-id",
        "processes",
        "errors",
        "no-memory",
        "slowed",
        "no-limits",
    ],
)
def test_text_and_xml_agree(driver, card):
    """Both forms of one machine give the same report, field by field."""
    assert report(smi.text(driver, [card])) == report(smi.xml(driver, [card]))


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_slows_a_gpu_and_what_waits(driver):
    """Clocks, link and limits of every layout; a row that a driver does not print is not told, and N/A is none."""
    card = Card(active=("HW Slowdown", "HW Power Brake Slowdown"), link=("1", "5", "8x", "16x"), threshold="Yes")
    found = one(card, driver).condition
    assert [name for name, active in found.clock_reasons if active] == ["HW Slowdown", "HW Power Brake Slowdown"]
    assert found.slowed_by("Idle") is False
    assert (found.performance_state, found.pcie) == ("P0", PcieLink(1, 5, 8, 16))
    assert (found.power, found.module_power) == (PowerLimits(1100.0, 1150.0, 1200.0, 1250.0), PowerLimits())
    old = smi.release(driver) < (535, 0)
    assert found.sram_threshold_exceeded is (None if old else True)
    told = smi.release(driver) >= (580, 0)
    assert (found.channel_repair_pending, found.tpc_repair_pending) == ((False, True) if told else (None, None))
    assert found.strange == ()
    bare = one(Card(power=("N/A",) * 4, repair=("N/A", "N/A"), threshold="N/A", link=("N/A",) * 4), driver).condition
    assert (bare.power, bare.pcie, bare.tpc_repair_pending) == (PowerLimits(), PcieLink(), None)
    assert (bare.sram_threshold_exceeded, bare.strange) == (None, ())


def test_an_unknown_word_is_set_aside_by_name():
    """It is no value, and not the same as a row that is not there."""
    card = Card(repair=("Soon", "No"), link=("5", "5", "wide", "16x"), power=("much", "1 W", "1 W", "1 W"))
    found = one(card).condition
    assert (found.channel_repair_pending, found.pcie.width, found.power.enforced_w) == (None, None, None)
    named = {"Channel Repair Pending": "Soon", "Link Width Current": "wide", "Current Power Limit": "much"}
    assert dict(found.strange) == named


def test_a_corrupted_inforom_is_found_where_it_is_said():
    """In a warning on either stream (with the short PCI domain), or in place of a value; not as the fabric's status."""
    plain = smi.text("580.126", trays())
    warning = "WARNING: infoROM is corrupted at gpu 0009:01:00.0\n"
    assert report(plain).inforom_corrupt == ()
    for said in (Output(plain + warning), Output(plain, warning)):
        found = report(said)
        assert (found.inforom_corrupt, found.all_readable) == (("00000009:01:00.0",), True)
    assert report(plain, Output("", warning)).inforom_corrupt == ("00000009:01:00.0",)
    instead = smi.text("580.126", [Card(1, addressing="ATS")]).replace(": ATS", ": Corrupted infoROM")
    assert report(instead).inforom_corrupt == ("00000009:01:00.0",)
    assert report(smi.text("580.126", [Card(status="Corrupted infoROM")])).inforom_corrupt == ()


@pytest.mark.parametrize("state", ["In Progress", "Not Started", "N/A"])
def test_a_gpu_that_has_not_joined(state):
    """No answer from the fabric manager is not joined, and says nothing of health."""
    fabric = one(Card(state=state)).fabric
    assert (fabric.state, fabric.joined, fabric.healthy, fabric.pair) == (state, False, None, None)


def test_an_unknown_state_is_not_known():
    """A word that no driver prints (or error text) is no state: not joined would be a guess."""
    for word in ("Frobnicated", "Unknown Error", ""):
        assert one(Card(state=word)).fabric.joined is None


def test_completed_with_a_refusal_is_not_joined():
    """State Completed alone never means joined: the fabric manager's words count, and bare numbers are refusals."""
    for status in ("Insufficient Resources", "Unknown Error", "Not Supported", "28"):
        fabric = one(Card(status=status, cluster=smi.ZERO, clique="0")).fabric
        assert (fabric.joined, fabric.status) == (False, status)


def test_zero_uuid_is_no_domain():
    assert one(Card(clique="0", cluster=smi.ZERO)).fabric.joined is False


@pytest.mark.parametrize(("text", "found"), [("4000000004", 4000000004), ("0", 0), ("4294967296", None), ("-1", None)])
def test_clique_is_an_unsigned_32_bit_number(text, found):
    assert one(Card(clique=text)).fabric.clique_id == found


def test_clique_from_cliques_where_the_old_key_says_nothing():
    """R615 may print CliqueId N/A and the number as Unicast Pointer; Cliques may also be a key with error text."""
    assert one(Card(clique="N/A"), "615.71").fabric.pair == (smi.CLUSTER, 32766)
    assert one(Card(clique="7"), "615.71").fabric.clique_id == 7
    for words in ("", "Function Not Found"):
        assert one(Card(clique="N/A", cliques=words), "615.71").fabric.joined is None


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("Bandwidth", "Degraded"),
        ("Route Recovery in progress", "True"),
        ("Route Unhealthy", "True"),
        ("Access Timeout Recovery", "True"),
        ("Incorrect Configuration", "Incorrect Chassis Serial Number"),
        ("Partition Assigned", "False"),
    ],
)
def test_each_health_row_counts(row, text):
    """One bad row makes a GPU unhealthy whatever Summary says; N/A in it does not."""
    assert one(Card(health={row: text})).fabric.healthy is False
    assert one(Card(health={row: "N/A"})).fabric.healthy is True


@pytest.mark.parametrize("form", [smi.text, smi.xml])
@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("Bandwidth", "Something new"),
        ("Route Recovery in progress", "Maybe"),
        ("Route Unhealthy", "ERR!"),
        ("Access Timeout Recovery", "Unknown Error"),
        ("Partition Assigned", "Yes"),
        ("Summary", "ERR!"),
        ("Incorrect Configuration", "Unknown Error"),
    ],
)
def test_a_word_that_a_health_row_does_not_have_is_not_known(form, row, text):
    """Neither healthy, however fine the rows beside it are, nor a fault; and a fault beside it stays one."""
    health = report(form("580.126", [Card(health={row: text})])).gpus[0].fabric
    assert (health.healthy, health.health.unread, health.health.problems()) == (None, (f"{row}: {text}",), ())
    other = "Access Timeout Recovery" if row == "Route Unhealthy" else "Route Unhealthy"
    broken = report(form("580.126", [Card(health={row: text, other: "True"})])).gpus[0].fabric
    assert (broken.healthy, broken.health.unread) == (False, (f"{row}: {text}",))


@pytest.mark.parametrize(("row", "text"), [("Summary", "Marginal"), ("Incorrect Configuration", "Wrong Rack")])
def test_a_complaint_in_new_words_is_a_complaint(row, text):
    """Rows that name what is wrong: what they name need not be known before."""
    fabric = one(Card(health={row: text})).fabric
    assert (fabric.healthy, fabric.health.unread, text in fabric.health.problems()[0]) == (False, (), True)


def test_mig_devices_do_not_hide_the_gpu():
    """MIG Device sections have memory of their own: the GPU's stays the GPU's, and Fabric is found behind them."""
    gpu = one(Card(mig="Enabled"))
    assert (gpu.mig_enabled, gpu.memory_used_mib, gpu.fabric.joined) == (True, 12, True)


def test_processes_with_their_memory():
    gpu = one(Card(processes=((42, "C", "/opt/vllm: rank 0", "1024 MiB"), (43, "G", "Xorg", "N/A"))))
    assert [(p.pid, p.kind, p.name, p.used_mib) for p in gpu.processes] == [
        (42, "C", "/opt/vllm: rank 0", 1024),
        (43, "G", "Xorg", None),
    ]
    assert gpu.processes_known


def test_processes_that_cannot_be_listed_are_not_none():
    gpu = report(smi.text("580.126", [Card()]).replace(": None", ": N/A")).gpus[0]
    assert (gpu.processes, gpu.processes_known) == ((), False)


def test_health_and_places():
    gpu = report(smi.text("580.126", trays())).gpus[3]
    assert (gpu.platform.chassis_serial, gpu.platform.slot, gpu.platform.tray) == ("1820000000042", 14, 4)
    assert (gpu.platform.host_id, gpu.platform.peer_type, gpu.platform.module_id) == (1, "Switch Connected", 4)
    assert (gpu.ecc_uncorrected, gpu.remap_pending, gpu.remap_failed) == (0, False, True)
    assert (gpu.addressing_mode, gpu.c2c_mode) == ("ATS", "Enabled")
    assert one(Card(uncorrectable="3")).ecc_uncorrected == 3


@pytest.mark.parametrize(("driver", "says"), [("535.161", "Reset Required"), ("580.126", "Drain and Reset")])
def test_recovery_actions_of_old_and_new_drivers(driver, says):
    assert one(Card(recovery="Drain and Reset"), driver).recovery_action == says


# --- a GPU that cannot be read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [smi.text, smi.xml])
@pytest.mark.parametrize("words", ["GPU is lost", "GPU requires reset", "Unknown Error"])
def test_error_text_in_a_block_makes_it_unreadable(form, words):
    """A dead GPU still tells its name, and even a healthy fabric; no Gpu is made of it, and its place is kept."""
    cards = trays()
    cards[1].used = words
    found = report(form("615.71", cards))
    assert not found.all_readable
    assert [g.index for g in found.gpus] == [0, 2, 3]
    assert found.lost == (f"GPU 00000009:01:00.0: {words} (Used)",)


@pytest.mark.parametrize(
    "harmless",
    [
        Card(status="Unknown Error"),
        Card(addressing="Unknown Error"),
        Card(addressing="Requested functionality has been deprecated"),
        Card(processes=((9, "C", "GPU is lost", "N/A"),)),
    ],
    ids=["fabric-status", "addressing", "deprecated", "process-name"],
)
def test_error_text_that_says_nothing_of_the_gpu(harmless):
    """A fabric that refused, a field that a driver cannot tell, and a process with a droll name lose no GPU."""
    assert report(smi.text("580.126", [harmless])).all_readable


def test_a_lost_gpu_on_stdout_or_stderr():
    """570 prints the error line before the report on stdout, 580 on stderr; Attached GPUs counts the dead one."""
    rest = [c for c in trays() if c.place != 1]
    body = smi.text("570.195", rest, attached=4)
    for said in (Output(stdout=f"{LOST}\n\n\n{body}"), Output(stdout=body, stderr=LOST + "\n")):
        found = report(said, smi.query(rest))
        assert (found.lost, found.attached, found.all_readable) == ((LOST,), 4, False)
        assert [g.index for g in found.gpus] == [0, 2, 3]  # nvidia-smi's numbers, not places


def test_blocks_that_are_missing_without_a_word():
    """Nothing on stderr is no proof: four attached and three described is not readable."""
    found = report(smi.text("535.161", trays(3), attached=4))
    assert (found.lost, found.all_readable) == (("4 GPUs attached, 3 described",), False)
    more = report(smi.text("535.161", trays(3), attached=2))
    assert (more.lost, more.all_readable) == (("2 GPUs attached, but 3 described",), False)


@pytest.mark.parametrize("cut", [60, 400, 1500])
def test_a_report_that_was_cut_off(cut):
    """The last block without its Processes is not read as a healthy GPU."""
    found = report(smi.text("580.126", trays())[:-cut])
    assert not found.all_readable
    assert not report(Output(stdout=smi.text("580.126", trays()), truncated=True)).all_readable


def test_xml_that_was_cut_off_is_broken():
    assert "ends early" in read(smi.xml("580.126", trays())[:-40]).why


# --- index ------------------------------------------------------------------------------------------------------


def test_index_is_the_place_by_pci_address():
    """The order in the report does not matter, the PCI address does (domain first, as a number)."""
    assert [g.uuid[-1] for g in report(smi.text("580.126", trays()[::-1])).gpus] == ["0", "1", "2", "3"]


def test_a_list_that_disagrees_is_broken():
    """nvidia-smi's own list of indices is asked; when it says otherwise, no index is trusted."""
    assert "indices" in read(smi.text("580.126", trays()), smi.query(trays()[::-1][:2])).why
    swapped = smi.query(trays()).replace("0, GPU", "9, GPU").replace("1, GPU", "0, GPU").replace("9, GPU", "1, GPU")
    assert "indices" in read(smi.text("580.126", trays()), swapped).why


@pytest.mark.parametrize(
    "query",
    [
        NOT_SAVED,
        Output(exit_code=None, ms=30000),
        Output('Field "compute_cap" is not a valid field\n', "", 2),
    ],
)
def test_a_list_that_is_missing_is_a_note(query):
    found = report(smi.text("580.126", trays()), query)
    assert [g.index for g in found.gpus] == [0, 1, 2, 3]
    assert "not checked" in found.notes[0]
    assert found.gpus[0].compute_cap is None


# --- noise ------------------------------------------------------------------------------------------------------


def test_noise_around_and_inside_the_report():
    """Carriage returns, banners, pdsh prefixes and WARNING lines change nothing of what the report says."""
    plain = smi.text("580.126", trays())
    expected = report(plain)
    warned = plain.replace("    FB Memory", "WARNING: infoROM is corrupted at gpu 0008:01:00.0\n    FB Memory", 1)
    for noisy in (
        plain.replace("\n", "\r\n"),
        "Welcome to r1-t01\nAttached GPUs : 9\n" + plain + "WARNING: infoROM is corrupted at gpu 0008:01:00.0\n",
        warned,
        "".join(f"r1-t01: {line}\n" for line in plain.split("\n")),
    ):
        assert replace(report(noisy), inforom_corrupt=()) == expected


def test_a_process_name_cannot_forge_a_report():
    """What a stranger's process is called may hold line feeds: the first line of a name stands, extra GPUs do not."""
    forged = "x\n    Fabric\n        State : Completed\n    FB Memory Usage\n        Used : 0 MiB\n    MIG Mode\n"
    gpu = one(Card(state="In Progress", used="9000 MiB", processes=((7, "C", forged, "1 MiB"),)))
    assert (gpu.fabric.joined, gpu.memory_used_mib) == (False, 9000)
    extra = Card(processes=((7, "C", "x\nGPU 00000001:01:00.0\n    Product Name : H100", "1 MiB"),))
    assert not report(smi.text("580.126", [extra])).all_readable


# --- no report --------------------------------------------------------------------------------------------------

NO_DRIVER, DRIVER = "driver absent\npci_gpus 0\n", "driver present\npci_gpus 4\n"


def test_absent_only_without_driver():
    """127 on a host without driver is normal; with one, or when nobody knows, it is a problem."""
    missing = Output(stderr="timeout: failed to run command 'nvidia-smi': No such file or directory", exit_code=127)
    assert read(missing, system=NO_DRIVER).state == "absent"
    assert "4 NVIDIA cards" in read(missing, system="driver absent\npci_gpus 4\n").why
    assert read(missing, system=DRIVER).broken
    assert read(missing).broken


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest", 9),
        ("Failed to initialize NVML: Driver/library version mismatch", 18),
        ("Failed to initialize NVML: Unknown Error", 255),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12),
        ("No devices were found", 6),
        ("Unable to determine the device handle for GPU1: GPU is lost.  Reboot the system to recover this GPU", 15),
    ],
)
def test_failures_on_stdout_are_broken_with_their_words(words, code):
    """nvidia-smi fails on stdout; the words stand in the reading."""
    reading = read(Output(stdout=words + "\n\n", exit_code=code), system=DRIVER)
    assert reading.broken
    assert words[:60] in reading.why


def test_no_driver_and_no_card_is_absent_even_with_the_program():
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    assert read(Output(stdout=words, exit_code=9), system=NO_DRIVER).state == "absent"


def test_a_section_without_answer_says_why():
    assert "no answer" in read(Output(exit_code=124, ms=60000)).why
    assert read(Output(exit_code=None, state="skipped", note="another probe")).why == "another probe"
    assert read(NOT_SAVED).why == "not saved"
    assert read("").broken


def test_the_exit_code_of_a_whole_report_does_not_matter():
    """A corrupted infoROM makes nvidia-smi exit 14 after a perfect report."""
    assert report(Output(stdout=smi.text("580.126", trays()), exit_code=14)).all_readable


def test_hostile_xml_is_refused():
    """No entities, no bottomless nesting; the DOCTYPE is never given to the parser at all."""
    bomb = '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    assert read(f"{bomb}<nvidia_smi_log><attached_gpus>&b;</attached_gpus></nvidia_smi_log>").broken
    assert "deeply" in read("<nvidia_smi_log>" + "<a>" * 50 + "</a>" * 50 + "</nvidia_smi_log>").why
    inner = '<nvidia_smi_log><!DOCTYPE x SYSTEM "file:///etc/passwd"></nvidia_smi_log>'
    assert read(inner).broken


PIECES = st.sampled_from([*smi.text("615.71", trays(2)).split("\n"), "\r", "\x00", "GPU is lost", "    " * 40 + "a: b"])


@given(st.one_of(st.text(), st.lists(PIECES).map("\n".join), st.binary().map(lambda b: b.decode("utf-8", "replace"))))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_reading(text):
    """The parser is total: whatever a host prints, on whichever side, there is a reading and no exception."""
    for said in (text, "<nvidia_smi_log>" + text + "</nvidia_smi_log>", smi.text("580.126", trays()) + text):
        gpus.parse({"nvidia-smi-q": Output(stdout=said, stderr=text), gpus.QUERY: Output(stdout=text)})


def test_a_huge_report_is_read_once():
    """4 MiB of one line, of blank lines and of deep nesting are read without recursion."""
    for text in ("x" * 2**22, "\n" * 2**22, "\n".join(" " * (i % 3000) + f"k{i}: v" for i in range(3000))):
        assert read(text).broken
        assert report(smi.text("580.126", trays()) + text)


def test_fabric_of_an_excerpt():
    """A Fabric block alone can be read, though it is no report."""
    root = read_text("GPU 00000000:01:00.0\n" + smi.text("590.48", trays(1)).split("Readings \n")[1])
    assert root is not None
    assert fabric_of(root.all("GPU")[0]).pair == (smi.CLUSTER, 32766)
