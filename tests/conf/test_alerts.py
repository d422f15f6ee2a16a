"""Each alert rule fires for its cause, and not without it, as promtool evaluates it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "conf/alerts.yml"
NAMES = re.findall(r"- alert: (\w+)", RULES.read_text())
NODE = 'job="sluice",instance="a:9000"'
BUCKETS = (0.1, 10, 100, "+Inf")
PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def slow(name, labels, bounds=BUCKETS):
    """Return a histogram whose values all lie between its last two bounds."""
    return {
        f'{name}_bucket{{{labels},le="{bound}"}}': "0+60x200" if bound in bounds[-2:] else "0x200"
        for bound in bounds
    }


INFO = 'sluice_build_info{%s,version="1"}'
CIRCUIT = 'sluice_channel_circuit_state{%s,channel="c",model="m"}'
HEALTHY = {
    f"up{{{NODE}}}": "1x200",
    INFO % NODE: "1x200",
    f"sluice_workers_ready{{{NODE}}}": "2x200",
    f"sluice_draining{{{NODE}}}": "0x200",
    f"sluice_hub_up{{{NODE}}}": "1x200",
    f"sluice_backup_age_seconds{{{NODE}}}": "0+60x200",
    f"sluice_books_verify_age_seconds{{{NODE}}}": "0+60x200",
    CIRCUIT % NODE: "0x200",
    f"sluice_records_parked{{{NODE}}}": "0x200",
    f"sluice_clock_lead_seconds{{{NODE}}}": "59x200",
    f'sluice_requests_total{{{NODE},endpoint="/e",model="m",status="200"}}': "0+100x200",
}
OTHER = 'job="sluice",instance="b:9000"'
FAILED = f'sluice_requests_total{{{NODE},endpoint="/e",model="%s",status="502",error_code="%s"}}'
# alert -> (series that replace or join the healthy ones, one sample a minute; minute it fires)
FIRING = {
    "SluiceAbsent": ({INFO % NODE: None}, 5),
    # one node of two; the other one goes on
    "SluiceNodeDown": ({f"up{{{OTHER}}}": "1x30 0x200", INFO % OTHER: "1x30 stale"}, 35),
    "SluiceNoWorkerReady": ({f"sluice_workers_ready{{{NODE}}}": "0x200"}, 5),
    "SluiceWorkersDie": ({f"sluice_worker_restarts_total{{{NODE}}}": "0 1 2 3 4 4x200"}, 5),
    # a circuit that is half-open between two calls counts as not closed
    "SluiceModelDown": ({CIRCUIT % NODE: "2 1 1 2 1 1 1x200", CIRCUIT % OTHER: "0x200"}, 4),
    # three calls an hour, all of which fail: no circuit opens
    "SluiceModelFails": ({FAILED % ("rare", "upstream_error"): "0x10 1x10 2x10 3x10 4x200"}, 45),
    "SluiceChannelDown": ({CIRCUIT % NODE: "2 1 " * 7 + "2"}, 14),
    "SluiceKeysSuspended": ({f'sluice_upstream_keys_suspended{{{NODE},channel="c"}}': "1x200"}, 2),
    "SluiceServerErrors": ({FAILED % ("m", "upstream_error"): "0+50x200"}, 15),
    "SluiceInternalErrors": ({FAILED % ("m", "internal_error"): "0 1 1x200"}, 3),
    "SluiceSlowFirstToken": (slow("sluice_time_to_first_token_seconds", f'{NODE},model="m"'), 25),
    "SluiceChannelSlow": (
        slow("sluice_upstream_first_byte_seconds", f'{NODE},channel="c"', (0.1, 70, 100, "+Inf")),
        25,
    ),
    "SluiceOverhead": (slow("sluice_overhead_seconds", NODE, (0.1, 0.3, 1, "+Inf")), 25),
    "SluiceLoopLag": (slow("sluice_loop_lag_seconds", NODE, (0.1, 0.2, 1, "+Inf")), 25),
    # frozen for two minutes: the writer fails every few seconds
    "SluiceStoreFails": (
        {f'sluice_usage_write_errors_total{{{NODE},code="2013"}}': "0x5 4 8 12 12x200"},
        8,
    ),
    "SluiceRecordsWait": ({f"sluice_usage_queue_depth{{{NODE}}}": "20000x200"}, 11),
    "SluiceRecordsParked": ({f"sluice_records_parked{{{NODE}}}": "1x200"}, 1),
    "SluiceStoreRetries": ({f'sluice_store_retries_total{{{NODE},code="1213"}}': "0+120x200"}, 25),
    "SluiceRateLimited": (
        {f'sluice_rate_limited_total{{{NODE},limit="channel_rpm"}}': "0+120x200"},
        25,
    ),
    "SluiceReloadRefused": ({f"sluice_config_reload_success{{{NODE}}}": "0x200"}, 6),
    # behind; the healthy node is ahead, by less than a minute
    "SluiceClockWrong": ({f"sluice_clock_lead_seconds{{{NODE}}}": "-61x200"}, 3),
    "SluiceDraining": ({f"sluice_draining{{{NODE}}}": "1x200"}, 31),
    "SluiceUpkeepFails": ({f"sluice_upkeep_success{{{NODE}}}": "0x200"}, 61),
    "SluiceBackupOld": ({f"sluice_backup_age_seconds{{{NODE}}}": "180000x200"}, 61),
    "SluiceBooksNotVerified": ({f"sluice_books_verify_age_seconds{{{NODE}}}": None}, 61),
    "SluiceHubDown": ({f"sluice_hub_up{{{NODE}}}": "0x200"}, 3),
    "SluiceLinesDropped": ({f"sluice_log_lines_dropped_total{{{NODE}}}": "0 5 5x200"}, 2),
    "SluiceSpansDropped": ({f"sluice_spans_dropped_total{{{NODE}}}": "0+1x200"}, 31),
    "SluiceSeriesDropped": ({f"sluice_metric_series_dropped_total{{{NODE}}}": "1x200"}, 1),
}


def firing(tmp_path, changes, minute):
    """Return the alerts that fire at a minute, taken from a promtool test that expects none."""
    series = {name: values for name, values in {**HEALTHY, **changes}.items() if values is not None}
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": v} for name, v in series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
                    for name in NAMES
                ],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))  # JSON is YAML
    argv = [PROMTOOL, "test", "rules", file.name]
    done = subprocess.run(argv, check=False, cwd=tmp_path, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0 or "got:[" in output, output
    return set(re.findall(r"alertname: ?(\w+)", output))


def test_rules_are_valid():
    subprocess.run([PROMTOOL, "check", "rules", RULES], check=True, capture_output=True)


@pytest.mark.parametrize("minute", [1, 61, 190])
def test_nothing_fires_on_a_healthy_node(tmp_path, minute):
    assert firing(tmp_path, {}, minute) == set()


@pytest.mark.parametrize("alert", NAMES)
def test_each_rule_fires(tmp_path, alert):
    changes, minute = FIRING[alert]
    assert alert in firing(tmp_path, changes, minute)
