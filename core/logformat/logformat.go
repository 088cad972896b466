// Package logformat has handlers for log/slog that change the log lines of endpoints:
// [FoldRepeats] writes a few of many equal lines and counts the others, [WriteNServiceBusTexts]
// writes the texts that NServiceBus writes, and [AddMessageAttrs] tells of which message a
// handler's own lines are. Each can be used alone or around another one:
//
//	folder := logformat.FoldRepeats(logformat.WriteNServiceBusTexts(slog.NewJSONHandler(os.Stderr, nil)), 100)
//	defer folder.Flush()
//	config := core.Config{Logger: slog.New(folder)}
//
// Without them an endpoint writes one line for each failed attempt, with a message that is
// the same for all of them.
package logformat
