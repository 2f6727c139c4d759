use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;

/// Longer than the detection takes, shorter than the timeout of a test.
const WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn half_closed_client_differs_from_hangup() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let socket = Socket::of(&ours).unwrap();
    let connection = socket.connection();
    let (mut input, mut output, gone) = watch_hangup(ours, socket);
    let mut gone = std::pin::pin!(gone);
    theirs.write_all(b"ask").await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut printed = String::new();
    input.read_to_string(&mut printed).await.unwrap();
    assert_eq!(printed, "ask");
    assert!(timeout(WHILE, &mut gone).await.is_err(), "it waits for the answer");
    assert!(!connection.is_closed());
    output.write_all(b"yes").await.unwrap();
    let mut answer = [0; 3];
    theirs.read_exact(&mut answer).await.unwrap();
    drop(theirs);
    assert!(connection.is_closed());
    timeout(Duration::from_mins(1), gone).await.expect("gone");
}

#[tokio::test]
async fn connection_is_closed_before_its_input_is_read() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let socket = Socket::of(&ours).unwrap();
    let connection = socket.connection();
    let (mut input, _output, _gone) = watch_hangup(ours, socket);
    theirs.write_all(b"call").await.unwrap();
    drop(theirs);
    assert!(connection.is_closed());
    let mut received = String::new();
    input.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "call", "only the connection tells that the client no longer waits");
}

#[tokio::test]
async fn connection_ends_with_its_session() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let socket = Socket::of(&ours).unwrap();
    let connection = socket.connection();
    assert!(!connection.is_closed());
    drop(watch_hangup(ours, socket));
    assert!(connection.is_closed());
    assert!(!Connection::default().is_closed(), "a transport that cannot tell");
}
