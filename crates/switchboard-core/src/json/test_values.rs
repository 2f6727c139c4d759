//! Random JSON values for property tests.

use proptest::prelude::*;
use serde_json::Value;

/// Any value, four levels deep at most.
pub(super) fn values() -> impl Strategy<Value = Value> {
    values_with(prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Few digits, which every parser reads exactly.
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 8.0)),
    ])
}

/// Values with the numbers of a strategy.
pub(super) fn values_with(numbers: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        numbers,
        "(?s).{0,12}|[\\x00-\\x1f\"\\\\/\\x7f]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("(?s).{0,6}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
