use std::io::Read as _;

use super::*;

#[test]
fn requests_round_trip() {
    let request = Request {
        program: "sh".into(),
        cwd: "/tmp".into(),
        args: vec!["-c".into(), OsString::from_vec(vec![0xFF, b'\n']), OsString::new()],
        env: vec![("A".into(), "b=c".into()), ("EMPTY".into(), OsString::new())],
    };
    let bytes = request.encode().expect("it is short");
    assert_eq!(Request::decode(&bytes), Some(request));
    assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None);
    assert_eq!(Request::decode(&[]), None);
}

#[test]
fn events_round_trip() {
    for event in [Event::Started(4711), Event::Failed(2), Event::Ended(-1)] {
        assert_eq!(Event::decode(event.encode()), Some(event));
    }
    assert_eq!(Event::decode([0; Event::LENGTH]), None);
}

#[tokio::test]
async fn file_descriptors_arrive_with_their_byte() {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let (mut reading, writing) = io::pipe().expect("a pipe");
    send(ours.as_fd(), RUN, &[writing.as_fd()]).expect("the byte is sent");
    send(ours.as_fd(), TERMINATE, &[]).expect("the byte is sent");
    drop((ours, writing));
    let (byte, fds) = receive(&theirs).await.expect("it is readable").expect("a message");
    assert_eq!((byte, fds.len()), (RUN, 1));
    rustix::io::write(&fds[0], b"hello").expect("the pipe is open");
    drop(fds);
    let mut text = String::new();
    reading.read_to_string(&mut text).expect("the pipe is readable");
    assert_eq!(text, "hello");
    let (byte, fds) = receive(&theirs).await.expect("it is readable").expect("a message");
    assert_eq!((byte, fds.len()), (TERMINATE, 0));
    assert!(receive(&theirs).await.expect("it is readable").is_none());
}
