use std::collections::HashSet;

use serde_json::json;

use super::test_child::{TestHost, call, child, child_with, params, text, until, with_timeout};
use super::*;

#[tokio::test]
async fn child_starts_at_first_request() {
    let child = child("echo.py", &[]);
    assert_eq!(child.status().state, ChildState::NotStarted);
    assert!(child.initialized().is_none());
    let opened = with_timeout(child.open(&Caller::default())).await.expect("it opens");
    assert_eq!(opened.protocol_version, "2025-11-25");
    assert_eq!(opened.server_info, json!({"name": "echo", "version": "1"}));
    assert_eq!(opened.instructions.as_deref(), Some("A child for tests."));
    let ChildState::Running { pid: Some(pid), in_flight: 0, .. } = child.status().state else {
        panic!("{:?}", child.status());
    };
    with_timeout(child.stop()).await;
    assert_eq!(child.status().state, ChildState::NotStarted);
    assert_eq!(switchboard_sys::platform::process_started(pid), None);
}

#[tokio::test]
async fn answer_bytes_are_preserved() {
    let child = child("echo.py", &[]);
    let request = params(json!({"name": "echo", "arguments": {"z": 1, "a": [true, null]}}));
    let answer = with_timeout(child.request("tools/call", Some(request), &Caller::default()))
        .await
        .expect("an answer");
    assert_eq!(
        answer.get(),
        r#"{"content": [], "structuredContent": {"a": [true, null], "z": 1}, "unknown": {"z": 1, "a": 12345678901234567890}}"#
    );
    let error = call(&child, "fail", json!({}), &Caller::default()).await.expect_err("it fails");
    assert!(matches!(&error, ChildError::Rpc(error) if error.code == -32050 && error.message == "no luck"));
}

#[tokio::test]
async fn multiline_parameters_are_sent_on_one_line() {
    let child = child("echo.py", &[]);
    let pretty = "{\n \"name\": \"echo\",\r\n \"arguments\": {\"text\": \"a\\nb\"}\n}".to_owned();
    let request = RawValue::from_string(pretty).expect("it is JSON");
    let answer = with_timeout(child.request("tools/call", Some(request), &Caller::default()))
        .await
        .expect("an answer");
    assert!(answer.get().contains(r#""text": "a\nb""#), "{answer}");
}

#[tokio::test]
async fn child_environment_has_only_allowed_variables() {
    let child = child("echo.py", &[]);
    let names = text(&child, "environment").await.expect("an answer");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is something to be kept from it");
    assert!(!names.lines().any(|name| name.starts_with("CARGO") || name.starts_with("NEXTEST")), "{names}");
    assert!(names.lines().any(|name| name == "DECLARED"));
}

#[tokio::test]
async fn progress_precedes_answer_under_callers_token() {
    let child = child("echo.py", &[]);
    let host = TestHost::new("host", json!({}));
    let token = RawValue::from_string("\"mine\"".to_owned()).expect("it is JSON");
    let caller = Caller { progress_token: Some(token), ..host.caller() };
    call(&child, "progress", json!({}), &caller).await.expect("an answer");
    let expected: Vec<_> = (0..3)
        .map(|step| {
            let note = json!({"progressToken": "mine", "progress": step, "total": 3, "extra": "kept"});
            ("notifications/progress".to_owned(), note)
        })
        .collect();
    assert_eq!(*host.told.lock(), expected);
}

#[tokio::test]
async fn clients_progress_token_never_reaches_child() {
    let child = child("echo.py", &[]);
    let request = params(json!({"name": "parameters", "_meta": {"progressToken": 7, "kept": true}}));
    let answer = with_timeout(child.request("tools/call", Some(request), &Caller::default()))
        .await
        .expect("an answer");
    let answer: serde_json::Value = serde_json::from_str(answer.get()).expect("it is JSON");
    assert_eq!(answer["params"]["_meta"], json!({"kept": true}));
}

#[tokio::test]
async fn list_reads_all_pages() {
    let child = child("many.py", &[]);
    let tools = with_timeout(child.list(ListKind::Tools, &Caller::default())).await.expect("a list");
    let names: Vec<String> = tools
        .iter()
        .map(|tool| {
            serde_json::from_str::<serde_json::Value>(tool.get()).expect("it is JSON")["name"].to_string()
        })
        .collect();
    assert_eq!(names.len(), 1000);
    assert!(names.is_sorted());
    let none = with_timeout(child.list(ListKind::Prompts, &Caller::default())).await.expect("a list");
    assert!(none.is_empty());
}

#[tokio::test]
async fn endless_list_is_truncated() {
    let empty = child("many.py", &["empty"]);
    let tools = with_timeout(empty.list(ListKind::Tools, &Caller::default())).await.expect("a list");
    assert!(tools.is_empty());
    let heavy = child_with("many.py", &["heavy"], |_, options| options.message_cap = 1024 * 1024);
    let listing = with_timeout(heavy.list_all(ListKind::Tools, &Caller::default())).await.expect("a list");
    assert_eq!(listing.items.len(), 11, "as many as fit into one message");
    assert!(listing.is_cut, "there are more");
}

#[tokio::test]
async fn stray_answers_are_ignored_and_counted() {
    let child = child_with("liar.py", &[], |spec, _| spec.limits.rpc = Duration::from_secs(3));
    let late = call(&child, "wait", json!({}), &Caller::default()).await;
    assert!(matches!(&late, Err(ChildError::Timeout { method, .. }) if method == "tools/call"), "{late:?}");
    assert_eq!(text(&child, "now").await.expect("an answer"), "right");
    // Seven with unknown ids, one duplicate, one late.
    until(|| child.status().counts.stray_answers == 9).await;
    assert_eq!(text(&child, "now").await.expect("an answer"), "right");
    assert_eq!(child.status().counts.timeouts, 1);
}

#[tokio::test]
async fn string_and_float_answer_ids_match() {
    let child = child("liar.py", &[]);
    assert_eq!(text(&child, "string").await.expect("an answer"), "right");
    assert_eq!(text(&child, "float").await.expect("an answer"), "right");
    assert_eq!(child.status().counts.stray_answers, 0);
}

#[tokio::test]
async fn cancelled_call_returns_and_notifies_child() {
    let child = child_with("mute.py", &["calls"], |spec, _| spec.limits.rpc = Duration::from_secs(3));
    let caller = Caller::default();
    let (cancelled, ()) = tokio::join!(call(&child, "first", json!({}), &caller), async {
        until(|| child.status().counts.calls == 2).await;
        caller.cancelled.cancel();
    });
    assert!(matches!(cancelled, Err(ChildError::Cancelled)), "{cancelled:?}");
    // A dropped future and a timeout send the same cancellation.
    let dropped = Caller::default();
    tokio::select! {
        biased;
        _ = call(&child, "second", json!({}), &dropped) => panic!("it does not answer"),
        () = until(|| child.status().counts.calls == 3) => {}
    }
    let late = call(&child, "third", json!({}), &Caller::default()).await;
    assert!(matches!(late, Err(ChildError::Timeout { .. })), "{late:?}");
    let heard = call(&child, "heard", json!({}), &Caller::default()).await.expect("an answer");
    let heard = heard["heard"].as_array().expect("a list").clone();
    let ids = |method: &str, pointer: &str| -> Vec<serde_json::Value> {
        let of_method = heard.iter().filter(|message| message["method"] == method);
        of_method.map(|message| message.pointer(pointer).cloned().unwrap_or_default()).collect()
    };
    let mut called = ids("tools/call", "/id");
    called.pop();
    assert_eq!(called.len(), 3);
    assert_eq!(ids("notifications/cancelled", "/params/requestId"), called);
}

#[tokio::test]
async fn list_change_events_are_debounced() {
    let child = child("flood.py", &[]);
    let mut events = child.events();
    let host = TestHost::new("host", json!({}));
    let answer = call(&child, "flood", json!({}), &host.caller()).await.expect("an answer");
    assert_eq!(answer["content"][0]["text"], "done");
    let mut changes = 0;
    let mut seen = HashSet::new();
    let started = Instant::now();
    while seen.len() < 2 {
        match with_timeout(events.recv()).await.expect("nothing is missed") {
            ChildEvent::ListChanged(ListKind::Tools) => changes += 1,
            ChildEvent::ResourceUpdated(params) => {
                seen.insert(params.get().to_owned());
            }
            ChildEvent::Notification { params, to, .. } => {
                let (caller, other) = (host.caller(), TestHost::new("other", json!({})).caller());
                assert!(to.is(&caller.host.expect("it has one")) && !to.is(&other.host.expect("it has one")));
                seen.insert(params.get().to_owned());
            }
            event => panic!("{event:?}"),
        }
    }
    let most = 2 + started.elapsed().as_millis() / 100 + 20;
    assert!((1..=most).contains(&changes), "{changes} events of 5000");
    let expected = [r#"{"uri": "test://watched"}"#, r#"{"level": "info", "data": "flooded"}"#];
    assert_eq!(seen, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn concurrent_hosts_get_their_own_answers() {
    let child = child_with("echo.py", &[], |spec, options| {
        spec.limits.concurrency = 8;
        options.queue = 10_000;
    });
    let hosts = (0..100).map(|host| {
        let child = child.clone();
        tokio::spawn(async move {
            let calls = (0..20).map(|number| {
                let child = child.clone();
                async move {
                    let sent = json!({"host": host, "number": number});
                    let got =
                        call(&child, "echo", sent.clone(), &Caller::default()).await.expect("an answer");
                    assert_eq!(got["structuredContent"], sent);
                }
            });
            futures_util::future::join_all(calls).await;
        })
    });
    for done in with_timeout(futures_util::future::join_all(hosts)).await {
        done.expect("all answers were right");
    }
    assert_eq!(child.status().counts.starts, 1);
}

#[tokio::test]
async fn large_messages_flow_in_both_directions() {
    let child = child("echo.py", &[]);
    let large = "x".repeat(1_000_000);
    let calls = (0..8).map(|number| {
        let (child, large) = (child.clone(), &large);
        async move {
            let sent = json!({"number": number, "text": large});
            let got = call(&child, "echo", sent.clone(), &Caller::default()).await.expect("an answer");
            assert_eq!(got["structuredContent"], sent);
        }
    });
    with_timeout(futures_util::future::join_all(calls)).await;
}

#[tokio::test]
async fn full_queue_rejects_calls() {
    let child = child_with("mute.py", &["calls"], |spec, options| {
        spec.limits.concurrency = 1;
        options.queue = 1;
    });
    let caller = Caller::default();
    let first = call(&child, "first", json!({}), &caller);
    let second = call(&child, "second", json!({}), &caller);
    let third = async {
        until(|| child.0.queue.waiting() == 1).await;
        let third = call(&child, "third", json!({}), &Caller::default()).await;
        caller.cancelled.cancel();
        third
    };
    let (first, second, third) = tokio::join!(first, second, third);
    assert!(matches!(first, Err(ChildError::Cancelled)), "{first:?}");
    assert!(matches!(second, Err(ChildError::Cancelled)), "{second:?}");
    assert!(matches!(third, Err(ChildError::Busy { waiting: 1, .. })), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_works_on_multiple_threads() {
    let child = child("echo.py", &[]);
    let calls = (0..200).map(|number| {
        let child = child.clone();
        tokio::spawn(async move {
            let got =
                call(&child, "echo", json!({ "n": number }), &Caller::default()).await.expect("an answer");
            assert_eq!(got["structuredContent"], json!({ "n": number }));
        })
    });
    for done in with_timeout(futures_util::future::join_all(calls)).await {
        done.expect("the answer was right");
    }
}
