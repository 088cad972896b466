package core

import (
	"testing"
	"unicode/utf8"
)

// FuzzNote reads any text as the note of a message that waits for its destination.
func FuzzNote(f *testing.F) {
	for _, text := range []string{
		undeliveredNote{Queue: "audit", Audit: true, Tries: 3, Since: "2026-01-02 03:04:05:000006 Z"}.String(),
		`{"queue":"error","tries":9223372036854775807}`, `{"queue":"error","tries":-1}`, `{"queue":""}`, `{"queue":"\ud800"}`, `{"queue":"q","queue":"p"}`, `null`, `[]`, `{"tries":1e3,"queue":"q"}`, "", "\xff",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		note, ok := parseNote(text)
		if !ok {
			if note != (undeliveredNote{}) {
				t.Errorf("%q: %+v, although it is no note", text, note)
			}
			return
		}
		if note.Queue == "" || !utf8.ValidString(note.Queue) || !utf8.ValidString(note.Since) || note.Tries < 1 || note.Tries > 1000 {
			t.Errorf("%q is read as %+v", text, note)
		}
		if reread, ok := parseNote(note.String()); !ok || reread != note {
			t.Errorf("%+v is written as %s and read as %+v, %t", note, note, reread, ok)
		}
	})
}
