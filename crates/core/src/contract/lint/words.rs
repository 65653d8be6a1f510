//! What the name of a member says about it, by its last word: `createdAt`, `created_at` and `createdAts` are times.

/// Last words of amounts of money.
const MONEY: &[&str] = &[
    "amount",
    "balance",
    "cents",
    "cost",
    "fee",
    "money",
    "price",
    "salary",
    "subtotal",
    "surcharge",
    "tax",
];

/// Last words of instants and days.
const TIMES: &[&str] = &["at", "date", "datetime", "deadline", "time", "timestamp", "until"];

/// Those of them that may be a day without a time.
const DAYS: &[&str] = &["date", "deadline", "until"];

pub(super) fn is_money(name: &str) -> bool {
    MONEY.contains(&&*last(name))
}

pub(super) fn is_time(name: &str) -> bool {
    TIMES.contains(&&*last(name))
}

pub(super) fn is_day(name: &str) -> bool {
    DAYS.contains(&&*last(name))
}

/// The last word, in lower case and without a plural's `s`.
fn last(name: &str) -> String {
    let mut word = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphabetic() {
            word.clear();
        } else if c.is_uppercase() && was_lower {
            word = c.to_lowercase().collect();
        } else {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    // `retryTimes` counts, and `cents` has no singular here.
    let single = word
        .strip_suffix('s')
        .filter(|single| !["cent", "time"].contains(single));
    single.map(str::to_owned).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_by_its_last_word() {
        for name in [
            "amount",
            "totalAmount",
            "total_amount",
            "unit-prices",
            "TAX",
            "feeCents",
            "fees",
        ] {
            assert!(is_money(name), "{name}");
        }
        for name in ["amountOfItems", "priceList", "taxId", "coffee", "", "quantity"] {
            assert!(!is_money(name), "{name}");
        }
        for name in [
            "expireAt",
            "created_at",
            "startTime",
            "TIMESTAMP",
            "validUntil",
            "dates",
            "birthday_date",
        ] {
            assert!(is_time(name), "{name}");
        }
        for name in [
            "timeoutMs",
            "format",
            "flat",
            "attempts",
            "timezone",
            "updates",
            "retryTimes",
            "retentionDays",
        ] {
            assert!(!is_time(name), "{name}");
        }
        assert!(is_day("dueDate") && !is_day("createdAt"));
    }
}
