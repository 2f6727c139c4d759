use super::*;
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Long enough that a test that waits for it never ends.
const FOREVER: Duration = Duration::from_hours(1);

/// A job that does nothing.
struct Nothing {
    needs_sync: bool,
}

impl Job for Nothing {
    fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    fn is_submission(&self) -> bool {
        false
    }

    fn run(&mut self, _: &mut Transaction<'_>) {}

    fn finish(self: Box<Self>, _: Option<HubError>) {}
}

fn message() -> Command {
    Command::Run(Box::new(Nothing { needs_sync: true }))
}

fn outcome() -> Command {
    Command::Run(Box::new(Nothing { needs_sync: false }))
}

/// Returns the command channel of a queue, and the queue.
fn batches(max_delay: Duration) -> (mpsc::Sender<Command>, BatchQueue) {
    let (send_all, queue) = mpsc::channel(2 * BATCH);
    (send_all, BatchQueue { max_delay, ..BatchQueue::new(queue) })
}

/// Returns for each job of the next batch whether it needs a sync.
fn next(batches: &mut BatchQueue) -> Vec<bool> {
    batches.next().iter().map(|job| job.needs_sync()).collect()
}

fn send_all(sender: &mpsc::Sender<Command>, commands: impl IntoIterator<Item = Command>) {
    for command in commands {
        assert!(sender.try_send(command).is_ok());
    }
}

#[test]
fn ready_jobs_form_one_batch() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, [outcome()]);
    assert_eq!(next(&mut batches), [false], "no messages come, so that nothing is waited for");
    send_all(&sender, (0..=BATCH).map(|_| message()));
    assert_eq!(next(&mut batches).len(), BATCH);
    assert_eq!(next(&mut batches), [true]);
    assert!(batches.queue.is_empty());
}

#[test]
fn few_waiting_jobs_are_not_busy() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, (1..BUSY_AT).map(|_| message()));
    assert!(!batches.is_busy());
    send_all(&sender, [message()]);
    assert!(batches.is_busy());
    next(&mut batches);
    assert!(!batches.is_busy());
}

#[test]
fn single_message_delays_no_outcome() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, [message()]);
    assert_eq!(next(&mut batches), [true]);
    send_all(&sender, [outcome()]);
    assert_eq!(next(&mut batches), [false]);
}

#[test]
fn outcome_waits_for_next_message_under_load() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, [message(), message()]);
    assert_eq!(next(&mut batches), [true, true]);
    send_all(&sender, [outcome()]);
    let sending = thread::spawn(move || send_all(&sender, [outcome(), message(), outcome()]));
    let taken = next(&mut batches);
    sending.join().unwrap();
    let rest = if batches.queue.is_empty() { Vec::new() } else { next(&mut batches) };
    assert_eq!([taken.clone(), rest].concat(), [false, false, true, false]);
    assert!(taken.contains(&true), "the outcomes were not taken without the message");
}

#[test]
fn outcome_waits_at_most_max_delay() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, [message(), message()]);
    assert_eq!(next(&mut batches), [true, true]);
    // The time since those messages counts as short, and so does the delay itself.
    batches.recent = [Some(Instant::now() + FOREVER); 2];
    batches.max_delay = Duration::from_millis(1);
    send_all(&sender, [outcome()]);
    assert_eq!(next(&mut batches), [false]);
}

#[test]
fn jobs_before_stop_run_and_later_do_not() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, [message(), message()]);
    assert_eq!(next(&mut batches), [true, true]);
    send_all(&sender, [outcome(), Command::Stop, message()]);
    assert_eq!(next(&mut batches), [false], "nobody waits at the end");
    assert_eq!(next(&mut batches), [false; 0]);
    assert_eq!(next(&mut batches), [false; 0]);
}

#[test]
fn writer_ends_without_senders() {
    let (sender, mut batches) = batches(FOREVER);
    send_all(&sender, [message()]);
    drop(sender);
    assert_eq!(next(&mut batches), [true]);
    assert_eq!(next(&mut batches), [false; 0]);
}
