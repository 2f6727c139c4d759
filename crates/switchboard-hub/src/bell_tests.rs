use super::*;
use crate::test_hub::soon;

/// Two bells of one folder, at the same place or not.
fn bells(folder: &tempfile::TempDir, share_a_place: bool) -> [Bell; 2] {
    let dir = Dir::open_root(folder.path()).unwrap();
    let bell = Bell::open(&dir).unwrap();
    loop {
        let other = Bell::open(&dir).unwrap();
        if (other.0.place == bell.0.place) == share_a_place {
            return [bell, other];
        }
    }
}

fn rings(rung: &watch::Receiver<u64>) -> u64 {
    *rung.borrow()
}

async fn until(rung: &mut watch::Receiver<u64>, count: u64) {
    soon(rung.wait_for(|rings| *rings >= count)).await.unwrap();
    assert_eq!(rings(rung), count);
}

#[tokio::test]
async fn a_process_hears_its_own_ring_once_and_never_as_another_s() {
    let folder = tempfile::tempdir().unwrap();
    let [bell, other] = bells(&folder, false);
    let _ear = bell.hear_others();
    let (mut heard, mut others) = (bell.listen(), bell.listen_to_others());
    other.ring();
    until(&mut others, 1).await;
    until(&mut heard, 1).await;
    for count in 1..=10 {
        bell.ring();
        assert_eq!(rings(&heard), 1 + count, "at once");
    }
    // The events of our own rings come before this one's.
    other.ring();
    until(&mut others, 2).await;
    until(&mut heard, 12).await;
}

/// Two that happen to have the same place overwrite each other and are still heard.
#[tokio::test]
async fn a_shared_place_hides_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let [bell, other] = bells(&folder, true);
    let _ear = bell.hear_others();
    let mut others = bell.listen_to_others();
    for count in 1..=3 {
        bell.ring();
        other.ring();
        soon(others.wait_for(|rings| *rings >= count)).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_was_cut_short_counts_as_somebody_s_ring() {
    let folder = tempfile::tempdir().unwrap();
    let [bell, other] = bells(&folder, false);
    let _ear = bell.hear_others();
    let mut others = bell.listen_to_others();
    other.ring();
    until(&mut others, 1).await;
    bell.0.file().unwrap().set_len(0).unwrap();
    until(&mut others, 2).await;
}
