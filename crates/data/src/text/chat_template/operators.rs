//! The operators that make larger values of others, or compare nested ones: bounded, and in place of the engine's.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::bounds::{MOST_DEPTH, MOST_ITEMS, MOST_TEXT_BYTES, too_large};
use super::text::python;

/// The engine does not keep what it looked up under this number.
const NOT_KEPT: u8 = !0;

/// Replaces the instructions by filters of two values, which take them from the stack in the same order and leave one.
pub(super) fn replace(instructions: &mut Instructions<'_>) {
    let mut place = 0;
    while let Some(instruction) = instructions.get_mut(place) {
        place += 1;
        let filter = match instruction {
            Instruction::Add => "bounded_add",
            Instruction::Mul => "bounded_mul",
            Instruction::StringConcat => "bounded_concat",
            Instruction::Eq => "bounded_eq",
            Instruction::Ne => "bounded_ne",
            Instruction::Lt => "bounded_lt",
            Instruction::Lte => "bounded_lte",
            Instruction::Gt => "bounded_gt",
            Instruction::Gte => "bounded_gte",
            Instruction::In => "bounded_in",
            _ => continue,
        };
        *instruction = Instruction::ApplyFilter(filter, Some(2), NOT_KEPT);
    }
}

pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter("bounded_add", add);
    environment.add_filter("bounded_mul", mul);
    environment.add_filter("bounded_concat", concat);
    environment.add_filter("bounded_in", contained);
    environment.add_filter("bounded_eq", |left: Value, right: Value| comparable(&left, &right).map(|()| left == right));
    environment.add_filter("bounded_ne", |left: Value, right: Value| comparable(&left, &right).map(|()| left != right));
    environment.add_filter("bounded_lt", |left: Value, right: Value| comparable(&left, &right).map(|()| left < right));
    environment
        .add_filter("bounded_lte", |left: Value, right: Value| comparable(&left, &right).map(|()| left <= right));
    environment.add_filter("bounded_gt", |left: Value, right: Value| comparable(&left, &right).map(|()| left > right));
    environment
        .add_filter("bounded_gte", |left: Value, right: Value| comparable(&left, &right).map(|()| left >= right));
    // selectattr('role', 'equalto', 'user')
    for name in ["eq", "equalto", "=="] {
        environment.add_test(name, |left: Value, right: Value| comparable(&left, &right).map(|()| left == right));
    }
    for name in ["ne", "!="] {
        environment.add_test(name, |left: Value, right: Value| comparable(&left, &right).map(|()| left != right));
    }
    environment.add_test("in", contained);
}

fn impossible(operator: &str, left: &Value, right: &Value) -> Error {
    let kinds = (left.kind(), right.kind());
    Error::new(ErrorKind::InvalidOperation, format!("{operator} is not defined for {} and {}", kinds.0, kinds.1))
}

fn joined(left: &str, right: &str) -> Result<Value, Error> {
    match left.len() + right.len() <= MOST_TEXT_BYTES {
        true => Ok(Value::from([left, right].concat())),
        false => Err(too_large("a text")),
    }
}

fn concat(left: Value, right: Value) -> Result<Value, Error> {
    joined(&python(&left)?, &python(&right)?)
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// The items of lists, one after the other.
fn items<'a>(lists: impl Iterator<Item = &'a Value>) -> Result<Value, Error> {
    let mut found = Vec::new();
    for list in lists {
        for item in list.try_iter()? {
            if found.len() == MOST_ITEMS {
                return Err(too_large("a list"));
            }
            found.push(item);
        }
    }
    Ok(Value::from(found))
}

/// Two numbers, as integers if both are.
enum Numbers {
    Integers(i128, i128),
    Floats(f64, f64),
}

fn numbers(left: &Value, right: &Value) -> Option<Numbers> {
    if !left.is_number() || !right.is_number() {
        return None;
    }
    match (left.is_integer(), right.is_integer()) {
        (true, true) => {
            Some(Numbers::Integers(i128::try_from(left.clone()).ok()?, i128::try_from(right.clone()).ok()?))
        }
        _ => Some(Numbers::Floats(f64::try_from(left.clone()).ok()?, f64::try_from(right.clone()).ok()?)),
    }
}

fn add(left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return joined(left, right);
    }
    if is_list(&left) && is_list(&right) {
        return items([&left, &right].into_iter());
    }
    match numbers(&left, &right) {
        Some(Numbers::Integers(one, other)) => {
            one.checked_add(other).map(Value::from).ok_or_else(|| too_large("a number"))
        }
        Some(Numbers::Floats(one, other)) => Ok(Value::from(one + other)),
        None => Err(impossible("+", &left, &right)),
    }
}

fn mul(left: Value, right: Value) -> Result<Value, Error> {
    if let Some(found) = numbers(&left, &right) {
        return match found {
            Numbers::Integers(one, other) => {
                one.checked_mul(other).map(Value::from).ok_or_else(|| too_large("a number"))
            }
            Numbers::Floats(one, other) => Ok(Value::from(one * other)),
        };
    }
    let (what, times) = if right.is_integer() { (&left, &right) } else { (&right, &left) };
    let Some(times) = times.as_i64() else { return Err(impossible("*", &left, &right)) };
    let times = usize::try_from(times).unwrap_or(0);
    match what.as_str() {
        Some(text) if text.len().saturating_mul(times) <= MOST_TEXT_BYTES => Ok(Value::from(text.repeat(times))),
        Some(_) => Err(too_large("a text")),
        None if is_list(what) && times <= MOST_ITEMS => items(std::iter::repeat_n(what, times)),
        None if is_list(what) => Err(too_large("a list")),
        None => Err(impossible("*", &left, &right)),
    }
}

fn contained(needle: Value, container: Value) -> Result<bool, Error> {
    comparable(&needle, &container)?;
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::String => Ok(container.as_str().unwrap_or_default().contains(&python(&needle)?)),
        ValueKind::Seq | ValueKind::Iterable => Ok(container.try_iter()?.any(|item| item == needle)),
        ValueKind::Map => Ok(!container.get_item(&needle)?.is_undefined()),
        _ => Err(impossible("in", &needle, &container)),
    }
}

/// Whether comparing takes a bounded time: values may share parts, and are then far larger than the memory that they take.
fn comparable(left: &Value, right: &Value) -> Result<(), Error> {
    let mut left_over = MOST_ITEMS;
    count(left, 0, &mut left_over)?;
    count(right, 0, &mut left_over)
}

fn count(value: &Value, depth: usize, left_over: &mut usize) -> Result<(), Error> {
    *left_over = left_over.checked_sub(1).ok_or_else(|| too_large("a value"))?;
    if depth > MOST_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.try_for_each(|item| count(&item, depth + 1, left_over))
        }
        ValueKind::Map => value.try_iter()?.try_for_each(|key| count(&value.get_item(&key)?, depth + 1, left_over)),
        _ => Ok(()),
    }
}
