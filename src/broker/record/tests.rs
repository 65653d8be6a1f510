use lapin::types::{AMQPValue, DecimalValue, FieldTable, ShortString};
use proptest::prelude::*;

use super::*;

fn table(fields: impl IntoIterator<Item = (String, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert(ShortString::try_new(name).unwrap(), value);
    }
    table
}

fn with(name: &str, value: AMQPValue) -> BasicProperties {
    BasicProperties::default().with_headers(table([(name.to_owned(), value)]))
}

/// A value inside of `depth` containers, tables and arrays in turns.
fn nested(depth: usize) -> AMQPValue {
    (0..depth).fold(AMQPValue::LongString("core".into()), |inside, at| {
        if at % 2 == 0 {
            AMQPValue::FieldTable(table([("n".to_owned(), inside)]))
        } else {
            AMQPValue::FieldArray(vec![inside].into())
        }
    })
}

/// By the text, bit for bit: a float that is no number is not equal to itself.
fn assert_round_trip(properties: &BasicProperties) {
    let text = record(properties);
    assert!(text.is_ascii() && !text.contains('\0'));
    let restored = restore(&text).unwrap();
    assert_eq!(record(&restored), text);
    // Where equality says anything, it says so too.
    let twin = properties.clone();
    if twin == *properties {
        assert_eq!(restored, *properties);
    }
    assert!(lines(&text).is_ok());
}

fn short() -> impl Strategy<Value = ShortString> {
    prop_oneof![
        ".{0,40}",
        Just("\0".to_owned()),
        Just("\u{202e}\u{10ffff}\"\\\u{7f}".to_owned()),
        Just("x".repeat(255)),
    ]
    .prop_map(|text| ShortString::try_new(text).unwrap())
}

fn scalar() -> impl Strategy<Value = AMQPValue> {
    prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        // Every pattern of bits, the numbers that are none included.
        any::<u32>().prop_map(|bits| AMQPValue::Float(f32::from_bits(bits))),
        any::<u64>().prop_map(|bits| AMQPValue::Double(f64::from_bits(bits))),
        (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        short().prop_map(AMQPValue::ShortString),
        ".{0,40}".prop_map(|text| AMQPValue::LongString(text.into())),
        any::<Vec<u8>>().prop_map(|bytes| AMQPValue::LongString(bytes.into())),
        any::<Vec<u8>>().prop_map(|bytes| AMQPValue::ByteArray(bytes.into())),
        Just(AMQPValue::Void),
    ]
}

fn any_value() -> impl Strategy<Value = AMQPValue> {
    scalar().prop_recursive(6, 60, 5, |inside| {
        prop_oneof![
            prop::collection::vec(inside.clone(), 0..5).prop_map(|items| AMQPValue::FieldArray(items.into())),
            prop::collection::btree_map(short(), inside, 0..5)
                .prop_map(|fields| AMQPValue::FieldTable(fields.into())),
        ]
    })
}

prop_compose! {
    fn properties()(
        texts in prop::collection::vec(prop::option::of(short()), 9),
        modes in (prop::option::of(any::<u8>()), prop::option::of(any::<u8>()), prop::option::of(any::<u64>())),
        headers in prop::option::of(prop::collection::btree_map(short(), any_value(), 0..6)),
    ) -> BasicProperties {
        let mut out = BasicProperties::default();
        let mut texts = texts.into_iter();
        macro_rules! texts {
            ($($set:ident),*) => {
                $(if let Some(Some(text)) = texts.next() { out = out.$set(text); })*
            };
        }
        texts!(with_content_type, with_content_encoding, with_correlation_id, with_reply_to, with_expiration,
            with_message_id, with_type, with_user_id, with_app_id);
        if let Some(mode) = modes.0 { out = out.with_delivery_mode(mode); }
        if let Some(priority) = modes.1 { out = out.with_priority(priority); }
        if let Some(timestamp) = modes.2 { out = out.with_timestamp(timestamp); }
        if let Some(headers) = headers { out = out.with_headers(headers.into()); }
        out
    }
}

proptest! {
    #[test]
    fn what_is_recorded_is_restored(properties in properties()) {
        assert_round_trip(&properties);
    }

    /// No text makes it panic or recurse without end, one byte away from a real one least of all.
    #[test]
    fn a_changed_text_is_refused_or_read(properties in properties(), at in any::<prop::sample::Index>(), byte in 0x20u8..0x7f) {
        let mut text = record(&properties).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(restored) = restore(std::str::from_utf8(&text).unwrap()) {
            assert_round_trip(&restored);
        }
    }
}

#[test]
fn the_form_is_as_described() {
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_timestamp(u64::MAX)
        .with_headers(table([
            ("a".to_owned(), AMQPValue::LongString("é\n".into())),
            ("b".to_owned(), AMQPValue::LongString(vec![0xff].into())),
            ("c".to_owned(), AMQPValue::LongString("\0".into())),
            ("d".to_owned(), AMQPValue::Double(-0.0)),
            ("e".to_owned(), AMQPValue::Double(f64::INFINITY)),
            (
                "f".to_owned(),
                AMQPValue::FieldArray(vec![AMQPValue::Void].into()),
            ),
            ("g\0".to_owned(), AMQPValue::Timestamp(9_007_199_254_740_993)),
        ]));
    assert_eq!(
        record(&properties),
        r#"{"properties":{"content_type":"application/json","delivery_mode":2,"timestamp":18446744073709551615},"#.to_owned()
            + r#""headers":{"a":{"t":"S","v":"\u00e9\u000a"},"b":{"t":"S","b64":"/w=="},"c":{"t":"S","b64":"AA=="},"#
            + r#""d":{"t":"d","v":"-0"},"e":{"t":"d","bits":"7ff0000000000000"},"f":{"t":"A","v":[{"t":"V"}]},"#
            + r#""g\u0000":{"t":"T","v":9007199254740993}}}"#
    );
    assert_eq!(record(&BasicProperties::default()), r#"{"properties":{}}"#);
    assert_round_trip(&properties);
}

#[test]
fn tables_nested_as_deep_as_the_wire_allows_are_kept() {
    for depth in [1, 100, MAX_DEPTH] {
        assert_round_trip(&with("deep", nested(depth)));
    }
}

#[test]
fn deeper_ones_are_left_out_and_never_read() {
    let text = record(&with("deep", nested(MAX_DEPTH + 1)));
    assert!(!text.contains("core"), "the innermost container is left out");
    assert!(restore(&text).is_ok());
    let (open, close) = (r#"{"t":"A","v":["#, "]}");
    for depth in [MAX_DEPTH + 1, 50_000] {
        let text = format!(
            r#"{{"properties":{{}},"headers":{{"x":{}{}}}}}"#,
            open.repeat(depth),
            close.repeat(depth)
        );
        assert!(restore(&text).is_err(), "{depth}");
    }
}

#[test]
fn other_texts_are_refused_without_being_quoted() {
    for text in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"properties":{}} "#.repeat(2).as_str(),
        r#"{"properties":{"secret":1}}"#,
        r#"{"properties":{},"headers":{"secret":1}}"#,
        r#"{"properties":{},"headers":{"secret":{"v":1}}}"#,
        r#"{"properties":{},"headers":{"secret":{"t":"I","v":3000000000}}}"#,
        r#"{"properties":{},"headers":{"secret":{"t":"I","v":1,"w":2}}}"#,
        r#"{"properties":{},"headers":{"secret":{"t":"S","b64":"%"}}}"#,
        r#"{"properties":{},"headers":{"secret":{"t":"?"}}}"#,
        &format!(r#"{{"properties":{{"type":"{}"}}}}"#, "secret".repeat(43)),
        &format!(
            r#"{{"properties":{{"type":"{}"}}}}"#,
            "secret".repeat(MAX_BYTES / 6)
        ),
    ] {
        let error = restore(text).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn lines_are_safe_to_show() {
    let properties = BasicProperties::default()
        .with_type("a\u{1b}[2Jb".into())
        .with_headers(table([
            ("evil\n".to_owned(), AMQPValue::LongString("\u{202e}x\r\n".into())),
            ("bytes".to_owned(), AMQPValue::ByteArray(vec![0, 0xff].into())),
            (
                "long".to_owned(),
                AMQPValue::LongString("é".repeat(10_000).into()),
            ),
            ("nested".to_owned(), nested(3)),
            ("number".to_owned(), AMQPValue::LongLongInt(9_007_199_254_740_993)),
        ]));
    let lines = lines(&record(&properties)).unwrap();
    let shown: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(shown[0], ("type", "a\\u{1b}[2Jb"));
    assert_eq!(shown[1], ("headers.bytes", "\\u{0}\\xff"));
    assert_eq!(shown[2], ("headers.evil\\n", "\\u{202e}x\\r\\n"));
    assert!(shown[3].1.chars().count() <= 4_200, "{}", shown[3].1.len());
    assert_eq!(shown[4], ("headers.nested", "{n: [{n: core}]}"));
    assert_eq!(shown[5], ("headers.number", "9007199254740993"));
    assert!(
        lines
            .iter()
            .all(|(name, value)| !name.contains('\n') && !value.contains('\n'))
    );
}
