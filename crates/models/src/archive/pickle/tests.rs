use super::*;

fn root(bytes: &[u8]) -> Pickle<'_> {
    parse(bytes).unwrap_or_else(|fault| panic!("{fault:?}"))
}

#[test]
fn numbers_of_every_width_are_read() {
    for (bytes, expected) in [
        (&b"K\xff."[..], 255),
        (b"M\x01\x02.", 513),
        (b"J\xfe\xff\xff\xff.", -2),
        (b"\x8a\x00.", 0),
        (b"\x8a\x01\xff.", -1),
        (b"\x8a\x02\xff\x00.", 255),
        (b"\x8b\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f.", i64::MAX),
        (b"I-12\n.", -12),
        (b"L34L\n.", 34),
    ] {
        assert_eq!(root(bytes).root, Value::Int(expected), "{bytes:?}");
    }
    assert_eq!(root(b"I01\n.").root, Value::Bool(true));
    assert!(matches!(root(b"\x8a\x09123456789.").root, Value::LongInt(_)));
}

#[test]
fn strings_of_every_age_are_read() {
    let long = b"\x8d\x02\0\0\0\0\0\0\0ab.";
    for bytes in [&b"X\x02\0\0\0ab."[..], b"\x8c\x02ab.", long, b"U\x02ab.", b"T\x02\0\0\0ab.", b"S'ab'\n.", b"Vab\n."]
    {
        let pickle = root(bytes);
        assert_eq!(pickle.text(pickle.root), Some("ab"), "{bytes:?}");
    }
}

#[test]
fn tuples_keep_their_order() {
    for bytes in [&b"K\x01K\x02K\x03\x87."[..], b"(K\x01K\x02K\x03t.", b"(K\x01K\x02K\x03l.", b"](K\x01K\x02K\x03e."] {
        let pickle = root(bytes);
        assert_eq!(pickle.sequence(pickle.root), Some(&[Value::Int(1), Value::Int(2), Value::Int(3)][..]));
    }
}

#[test]
fn calls_are_written_down_and_not_made() {
    let pickle = root(b"cposix\nsystem\nX\x04\0\0\0true\x85R.");
    let Some(Object::Call(call)) = pickle.object(pickle.root) else { panic!("{pickle:?}") };
    assert_eq!(pickle.global(call.function).as_deref(), Some("posix.system"));
    assert_eq!(pickle.show(pickle.root), "the result of `posix.system`");
}

#[test]
fn programs_that_take_what_is_not_there_are_refused() {
    let mut bad: Vec<&[u8]> =
        vec![b"", b".", b"K", b"K\x01", b"0.", b"(.", b"t.", b"K\x01(\x85.", b"K\x01a.", b"]K\x01s."];
    bad.extend([
        &b"h\x00."[..],
        b"N(K\x01d.",
        b"}(K\x01u.",
        b"X\xff\xff\xff\xffab.",
        b"\x8b\xff\xff\xff\xff1.",
        b"g-1\n.",
    ]);
    bad.extend([
        &b"I1"[..],
        b"I99999999999999999999\n.",
        b"S'\n.",
        b"(o.",
        b"\x82\x01.",
        b"\x97.",
        b"\xff.",
        b"KaKb\x93.",
    ]);
    bad.extend([
        &b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab."[..],
        b"\x96\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x95\0.",
        b"2.",
    ]);
    for bytes in bad {
        assert!(parse(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_mark_protects_what_is_below_it() {
    assert!(parse(b"K\x01K\x02(\x86.").is_err());
    assert_eq!(root(b"K\x01(00K\x02.").root, Value::Int(2));
}

#[test]
fn deep_nesting_takes_no_stack_of_the_machine() {
    let depth = 1 << 20;
    let mut bytes = vec![b']'; depth];
    bytes.extend(vec![b'a'; depth - 1]);
    bytes.push(b'.');
    drop(root(&bytes));
}

#[test]
fn values_without_end_are_refused_early() {
    let mut bytes = vec![b'N'; 3 << 20];
    bytes.push(b'.');
    let fault = parse(&bytes).unwrap_err();
    assert!(format!("{fault:?}").contains("more values"), "{fault:?}");
    let mut bytes = b"]0".repeat(5 << 20);
    bytes.extend(b"N.");
    let fault = parse(&bytes).unwrap_err();
    assert!(format!("{fault:?}").contains("more objects"), "{fault:?}");
}
