"""The table of metrics, and the series that dashboard and alerts use."""

import json
import re
from pathlib import Path

import pytest

from conf.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "conf/grafana.json").read_text())
ALERTS = (ROOT / "conf/alerts.yml").read_text()
RUN_BOOK = (ROOT / "docs/alerts.md").read_text()
OF_PROMETHEUS = {"job", "instance"}
_ALERT = re.compile(
    r"""      - alert: (?P<name>\w+)
        expr: '(?P<expr>(?:[^'\n]|'')+)'
        for: (?P<wait>\d+m)
        labels:
          severity: (?P<severity>critical|warning)
        annotations:
          summary: '(?P<summary>[^'\n]+)'
          description: '(?P<description>(?:[^'\n]|'')+)'
          runbook_url: (?P<book>docs/alerts\.md#[\w-]+)
"""
)
RULES = [one.groupdict() for one in _ALERT.finditer(ALERTS)]

# The metrics promised in the interface: metric -> labels.
INTERFACE = {
    "sluice_requests_total": "family endpoint model group status error_code",
    "sluice_request_duration_seconds": "family model",
    "sluice_time_to_first_token_seconds": "family model",
    "sluice_time_per_output_token_seconds": "family model",
    "sluice_overhead_seconds": "family",
    "sluice_tokens_total": "model type",
    "sluice_cost_total": "currency model",
    "sluice_streams_in_flight": "",
    "sluice_calls_in_flight": "",
    "sluice_connections": "",
    "sluice_client_disconnects_total": "phase",
    "sluice_upstream_requests_total": "channel outcome",
    "sluice_upstream_retries_total": "reason",
    "sluice_channel_up": "channel model",
    "sluice_channel_circuit_state": "channel model",
    "sluice_rate_limited_total": "limit",
    "sluice_journal_bytes": "",
    "sluice_usage_queue_depth": "",
    "sluice_usage_write_errors_total": "code",
    "sluice_store_retries_total": "code",
    "sluice_loop_lag_seconds": "",
    "sluice_worker_restarts_total": "",
    "sluice_config_reload_success": "",
    "sluice_config_reload_timestamp_seconds": "",
    "sluice_draining": "",
    "sluice_build_info": "version python revision",
}


def test_the_table_has_what_the_interface_names():
    assert {name: " ".join(METRICS[name].labels) for name in INTERFACE} == INTERFACE


def test_histograms_go_to_600_s_and_grow():
    histograms = [metric for metric in METRICS.values() if metric.kind == "histogram"]
    assert histograms
    for metric in histograms:
        assert list(metric.bounds) == sorted(set(metric.bounds))
        assert metric.name == "sluice_loop_lag_seconds" or metric.bounds[-1] == 600 * metric.per


def expressions():
    """Yield (where, PromQL) of every query in dashboard and alerts."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for rule in RULES:
        yield rule["name"], rule["expr"].replace("''", "'")


def series_of(name):
    """Return the metric of a series' name, and the labels of the series."""
    for suffix in ("_bucket", "_sum", "_count"):
        metric = METRICS.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if metric is not None and metric.kind == "histogram":
            return {*metric.labels, *({"le"} if suffix == "_bucket" else ())}
    metric = METRICS[name]
    assert metric.kind != "histogram", f"{name} has buckets"
    return set(metric.labels)


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_what_is_asked_for_is_exported(where, expression):
    names = set(re.findall(r"sluice_\w+", expression))
    assert names, where
    labels = OF_PROMETHEUS.union(*map(series_of, names))
    for name, chosen in re.findall(r"(sluice_\w+)\{([^}]*)\}", expression):
        asked = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", chosen))
        assert asked <= series_of(name) | OF_PROMETHEUS, where
    grouped = re.findall(r"\b(?:by|on|without) ?\(([^)]*)\)", expression)
    assert {one.strip() for group in grouped for one in group.split(",")} <= labels, where
    for opened, closed in ("()", "{}", "[]"):
        assert expression.count(opened) == expression.count(closed), where
    counters = {name for name in names if name in METRICS and METRICS[name].kind == "counter"}
    rated = re.findall(r"(?:rate|increase)\((sluice_\w+)", expression)
    untouched = counters - set(rated) - {"sluice_metric_series_dropped_total"}
    assert not untouched or expression.startswith("label_values"), f"{where}: {untouched}"


def test_the_dashboard_shows_every_metric():
    shown = " ".join(expression for _, expression in expressions())
    missing = {name for name in METRICS if name not in shown}
    assert missing == set()


def test_every_rule_is_whole_and_has_its_run_book():
    head, _, rules = ALERTS.partition("    rules:\n")
    assert head.endswith("groups:\n  - name: sluice\n")
    assert _ALERT.sub("", rules) == ""
    names = [rule["name"] for rule in RULES]
    assert len(names) == len(set(names)) == ALERTS.count("- alert:") > 10
    assert re.findall(r"^## Alert (\w+)$", RUN_BOOK, re.MULTILINE) == names
    for rule in RULES:
        assert rule["book"] == f"docs/alerts.md#alert-{rule['name'].lower()}"
