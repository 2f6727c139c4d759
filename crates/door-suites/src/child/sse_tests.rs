use super::*;

#[test]
fn endpoint_must_share_origin() {
    let url = Url::parse("http://127.0.0.1:3000/sse").expect("an address");
    let at = |data: &str| endpoint(&url, data.as_bytes()).map(|url| url.to_string());
    assert_eq!(at("/messages?s=1"), Ok("http://127.0.0.1:3000/messages?s=1".to_owned()));
    assert_eq!(at("http://127.0.0.1:3000/m"), Ok("http://127.0.0.1:3000/m".to_owned()));
    for elsewhere in
        ["http://127.0.0.1:3001/m", "https://127.0.0.1:3000/m", "//169.254.169.254/m", "javascript:x"]
    {
        let error = at(elsewhere).expect_err(elsewhere);
        assert!(error.contains("which is not http://127.0.0.1:3000"), "{error}");
    }
}
