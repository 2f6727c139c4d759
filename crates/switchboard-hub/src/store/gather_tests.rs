use super::*;
use crate::error::HubError;
use crate::store::writer::Work;

/// Long enough that a test in which somebody waits for it does not end.
const FOREVER: Duration = Duration::from_hours(1);

/// A job that does nothing.
struct Nothing {
    must_last: bool,
}

impl Job for Nothing {
    fn must_last(&self) -> bool {
        self.must_last
    }

    fn is_submission(&self) -> bool {
        false
    }

    fn run(&mut self, _: &mut Work<'_>) {}

    fn finish(self: Box<Self>, _: Option<HubError>) {}
}

fn message() -> Command {
    Command::Run(Box::new(Nothing { must_last: true }))
}

fn outcome() -> Command {
    Command::Run(Box::new(Nothing { must_last: false }))
}

/// What is to be told to a writer, and the writer's end of it.
fn gather(patience: Duration) -> (mpsc::Sender<Command>, Gather) {
    let (tell, queue) = mpsc::channel(2 * BATCH);
    (tell, Gather { patience, ..Gather::new(queue) })
}

/// Which of the next jobs must last.
fn next(gather: &mut Gather) -> Vec<bool> {
    gather.next().iter().map(|job| job.must_last()).collect()
}

fn tell(sender: &mpsc::Sender<Command>, commands: impl IntoIterator<Item = Command>) {
    for command in commands {
        assert!(sender.try_send(command).is_ok());
    }
}

#[test]
fn what_lies_ready_is_taken_at_once_up_to_a_batch() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, [outcome()]);
    assert_eq!(next(&mut gather), [false], "no messages come, so that nothing is waited for");
    tell(&sender, (0..=BATCH).map(|_| message()));
    assert_eq!(next(&mut gather).len(), BATCH);
    assert_eq!(next(&mut gather), [true]);
    assert!(gather.queue.is_empty());
}

#[test]
fn a_few_that_wait_are_not_many() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, (1..MANY).map(|_| message()));
    assert!(!gather.has_many());
    tell(&sender, [message()]);
    assert!(gather.has_many());
    next(&mut gather);
    assert!(!gather.has_many());
}

#[test]
fn one_message_alone_makes_no_outcome_wait() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, [message()]);
    assert_eq!(next(&mut gather), [true]);
    tell(&sender, [outcome()]);
    assert_eq!(next(&mut gather), [false]);
}

#[test]
fn while_messages_come_an_outcome_waits_for_the_next() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, [message(), message()]);
    assert_eq!(next(&mut gather), [true, true]);
    tell(&sender, [outcome()]);
    let sending = thread::spawn(move || tell(&sender, [outcome(), message(), outcome()]));
    let taken = next(&mut gather);
    sending.join().unwrap();
    let rest = if gather.queue.is_empty() { Vec::new() } else { next(&mut gather) };
    assert_eq!([taken.clone(), rest].concat(), [false, false, true, false]);
    assert!(taken.contains(&true), "the outcomes were not taken without the message");
}

#[test]
fn an_outcome_does_not_wait_for_longer_than_that() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, [message(), message()]);
    assert_eq!(next(&mut gather), [true, true]);
    // The time since those messages counts as short, and the wait itself is.
    gather.recent = [Some(Instant::now() + FOREVER); 2];
    gather.patience = Duration::from_millis(1);
    tell(&sender, [outcome()]);
    assert_eq!(next(&mut gather), [false]);
}

#[test]
fn what_came_before_the_end_is_done_and_nothing_after_it() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, [message(), message()]);
    assert_eq!(next(&mut gather), [true, true]);
    tell(&sender, [outcome(), Command::Stop, message()]);
    assert_eq!(next(&mut gather), [false], "nobody waits at the end");
    assert_eq!(next(&mut gather), [false; 0]);
    assert_eq!(next(&mut gather), [false; 0]);
}

#[test]
fn without_anybody_to_tell_it_more_the_writer_ends() {
    let (sender, mut gather) = gather(FOREVER);
    tell(&sender, [message()]);
    drop(sender);
    assert_eq!(next(&mut gather), [true]);
    assert_eq!(next(&mut gather), [false; 0]);
}
