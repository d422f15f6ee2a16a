"""A scrape of metrics, read by the parser of prometheus-client."""

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text):
        self.families = {one.name: one for one in text_string_to_metric_families(text)}
        self.samples = [one for family in self.families.values() for one in family.samples]
        names = [(one.name, tuple(sorted(one.labels.items()))) for one in self.samples]
        assert len(names) == len(set(names)), "a series twice"

    def of(self, name, **labels):
        """Return the samples of a name that have these labels."""
        wanted = labels.items()
        return [one for one in self.samples if one.name == name and wanted <= one.labels.items()]

    def sum(self, name, **labels):
        return sum(one.value for one in self.of(name, **labels))

    def one(self, name, **labels):
        [found] = self.of(name, **labels)
        return found.value

    def counters(self):
        """Return everything that must never fall: (name, labels) -> value."""
        return {
            (one.name, *sorted(one.labels.items())): one.value
            for one in self.samples
            if one.name.endswith(("_total", "_bucket", "_count", "_sum"))
        }


def scrape(gateway):
    status, headers, body = gateway.call("GET", "/metrics", port=gateway.ops_port)
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(body.decode())
