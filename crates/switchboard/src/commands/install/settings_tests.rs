use super::*;

/// A settings file with an edit.
fn changed(folder: &Path) -> Settings {
    let mut settings = Settings::read(SettingsPath::in_workspace(folder, "settings.json")).unwrap();
    settings.edit(|text| Ok((Some(text.replace('1', "2")), ()))).unwrap();
    settings
}

#[test]
fn concurrent_edit_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    test_support::files::put(&path, "{ \"n\": 1 }\n");
    let settings = changed(folder.path());
    test_support::files::put(&path, "{ \"theirs\": 1 }\n");
    let failure = settings.write(Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!((failure.code, failure.exit), ("changed", Exit::Temporary));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ \"theirs\": 1 }\n");
    // The next attempt reads the current text.
    let written = changed(folder.path()).write(Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ \"theirs\": 2 }\n");
    assert_eq!(std::fs::read_to_string(written.backup.unwrap()).unwrap(), "{ \"theirs\": 1 }\n");
}
