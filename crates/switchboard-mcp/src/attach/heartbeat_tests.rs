use tokio::task::JoinHandle;

use super::*;

/// Far below the timeout of a test.
const FAST: Pace = Pace { interval: Duration::from_millis(5), slice: Duration::from_millis(20) };

/// Starts a server that handles each connection with a closure.
async fn server(
    answer: impl Fn(UnixStream) -> JoinHandle<()> + Send + 'static,
) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = switchboard_sys::socket::SameUserListener::bind(&path).await.unwrap();
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            answer(stream);
        }
    });
    (folder, path)
}

async fn read_greeting(stream: UnixStream) -> UnixStream {
    let (stream, greeting) = super::super::read_greeting(stream).await.unwrap();
    assert_eq!(greeting, super::super::Greeting::Heartbeat { heartbeat: true });
    stream
}

#[tokio::test]
async fn server_that_echoes_is_never_silent() {
    let (_folder, path) =
        server(|stream| tokio::spawn(async move { echo(read_greeting(stream).await).await })).await;
    let heartbeat = Heartbeat::connect(&path).await.unwrap();
    let mut wait_for_silence = std::pin::pin!(heartbeat.wait_for_silence(FAST));
    assert!(timeout(Duration::from_secs(1), &mut wait_for_silence).await.is_err());
}

#[tokio::test]
async fn server_that_echoes_no_more_is_silent() {
    let (_folder, path) = server(|stream| {
        tokio::spawn(async move {
            let mut stream = read_greeting(stream).await;
            for _ in 0..3 {
                let byte = stream.read_u8().await.unwrap();
                stream.write_u8(byte).await.unwrap();
            }
            std::future::pending::<()>().await;
        })
    })
    .await;
    let heartbeat = Heartbeat::connect(&path).await.unwrap();
    timeout(Duration::from_mins(1), heartbeat.wait_for_silence(FAST)).await.expect("noticed");
}

#[tokio::test]
async fn server_that_closes_the_heartbeat_is_not_silent() {
    let (_folder, path) = server(|stream| {
        tokio::spawn(async move {
            let mut stream = read_greeting(stream).await;
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte).await.unwrap();
        })
    })
    .await;
    let heartbeat = Heartbeat::connect(&path).await.unwrap();
    let mut wait_for_silence = std::pin::pin!(heartbeat.wait_for_silence(FAST));
    assert!(timeout(Duration::from_secs(1), &mut wait_for_silence).await.is_err());
}

#[tokio::test]
async fn probe_distinguishes_three_server_states() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(probe(&folder.path().join("nothing")).await, Liveness::Absent);
    let (_folder, path) =
        server(|stream| tokio::spawn(async move { echo(read_greeting(stream).await).await })).await;
    assert_eq!(probe(&path).await, Liveness::Answers);
    let (_folder, path) = server(|stream| {
        tokio::spawn(async move {
            let _stream = stream;
            std::future::pending::<()>().await;
        })
    })
    .await;
    assert_eq!(probe(&path).await, Liveness::Silent);
}
