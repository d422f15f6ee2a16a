"""The monthly statement: one's own, and for administrators that of any user; page, CSV, JSON."""

import csv
import io

from store.calls.reading.statement import format_month, month_after, month_at
from store.values.ids import now_ms
from tests.handlers.hub.overview_world import book, call, text_of

USER = "/admin/users/alice/statement"


def test_the_page_csv_and_json_say_the_same(alice, boss, api, db, world):
    book(db, call(db), call(db, model="gpt-5-mini"))
    api.call("POST", "/api/admin/users/alice/credit", {"amount": "5", "reason": "=more"})
    sheet = alice.get("/api/wallet/statement").json
    assert sheet == api.get(f"/api{USER}").json
    balance = alice.get("/api/wallet").json["balance"]
    assert (sheet["opening_balance"], sheet["closing_balance"]) == ("0", balance) == ("0", "14.8")
    assert (sheet["charges"], sheet["cost"], sheet["paid_by_plans"]) == ("-0.2", "0.2", "0")
    assert {model["model"] for model in sheet["models"]} == {"gpt-5", "gpt-5-mini"}
    for page in (alice.get("/wallet/statement"), boss.get(USER)):
        assert page.status == 200, page.text
        for shown in ("Opening balance", "Top-up", "gpt-5-mini", "14.8", "Not over yet"):
            assert shown in text_of(page), shown
    for answer in (alice.get("/wallet/statement.csv"), boss.get(f"{USER}.csv")):
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert rows[0]["entry"] == "opening_balance" and rows[-1]["amount"] == "14.8"
        assert rows[-2]["amount"] == sheet["charges"]
        assert "'=more" in {row["reason"] for row in rows}, "no formula"
        assert "attachment" in answer.headers["Content-Disposition"]


def test_months_and_rights(alice, boss, carol):
    month = month_at(now_ms())
    before, after = (format_month(month_after(month, by)) for by in (-1, 1))
    assert alice.get(f"/api/wallet/statement?month={after}").json["models"] == []
    old = alice.get(f"/wallet/statement?month={before}").text
    assert f"month={format_month(month)}" in old and "Closing balance" in old
    for wrong in ("soon", after):
        page = alice.get(f"/wallet/statement?month={wrong}")
        assert page.status == 400 and 'aria-invalid="true"' in page.text, wrong
        assert "has not begun" in page.text and "Not over yet" in page.text
    assert alice.get("/api/wallet/statement?month=2026-13").json["error"]["field"] == "month"
    assert boss.get("/admin/users/nobody/statement").status == 404
    for path in (USER, f"{USER}.csv", f"/api{USER}"):
        assert carol.get(path).status == 404
