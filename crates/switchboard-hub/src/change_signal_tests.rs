use super::*;
use crate::test_hub::with_timeout;

/// Two signals of one folder, in the same slot or not.
fn signals(folder: &tempfile::TempDir, share_a_slot: bool) -> [ChangeSignal; 2] {
    let dir = Dir::open_root(folder.path()).unwrap();
    let signal = ChangeSignal::open(&dir).unwrap();
    loop {
        let other = ChangeSignal::open(&dir).unwrap();
        if (other.0.slot == signal.0.slot) == share_a_slot {
            return [signal, other];
        }
    }
}

fn rings(rung: &watch::Receiver<u64>) -> u64 {
    *rung.borrow()
}

async fn until(rung: &mut watch::Receiver<u64>, count: u64) {
    with_timeout(rung.wait_for(|rings| *rings >= count)).await.unwrap();
    assert_eq!(rings(rung), count);
}

#[tokio::test]
async fn own_notification_is_seen_once_as_own() {
    let folder = tempfile::tempdir().unwrap();
    let [signal, other] = signals(&folder, false);
    let _watcher = signal.watch_others();
    let (mut all, mut others) = (signal.subscribe(), signal.subscribe_to_others());
    other.notify();
    until(&mut others, 1).await;
    until(&mut all, 1).await;
    for count in 1..=10 {
        signal.notify();
        assert_eq!(rings(&all), 1 + count, "at once");
    }
    // The events of our own notifications come before this one.
    other.notify();
    until(&mut others, 2).await;
    until(&mut all, 12).await;
}

/// Two processes in one slot overwrite each other's value and still notify.
#[tokio::test]
async fn shared_slot_hides_no_notification() {
    let folder = tempfile::tempdir().unwrap();
    let [signal, other] = signals(&folder, true);
    let _watcher = signal.watch_others();
    let mut others = signal.subscribe_to_others();
    for count in 1..=3 {
        signal.notify();
        other.notify();
        with_timeout(others.wait_for(|rings| *rings >= count)).await.unwrap();
    }
}

#[tokio::test]
async fn truncated_signal_file_counts_as_notification() {
    let folder = tempfile::tempdir().unwrap();
    let [signal, other] = signals(&folder, false);
    let _watcher = signal.watch_others();
    let mut others = signal.subscribe_to_others();
    other.notify();
    until(&mut others, 1).await;
    signal.0.file().unwrap().set_len(0).unwrap();
    until(&mut others, 2).await;
}
