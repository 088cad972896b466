package dialect

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// QuoteWith quotes a name so that no part of it can end the quotation.
func QuoteWith(name, open, end string) string {
	return open + strings.ReplaceAll(name, end, end+end) + end
}

// CheckName checks the rules for names of tables that all products share.
func CheckName(name string, length, most int, unit string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not UTF-8", name)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("the name %q contains a NUL", name)
	case length > most:
		return fmt.Errorf("the name %q has %d %s, but the longest name of a table has %d", name, length, unit, most)
	}
	return nil
}

// Storable returns a text without NUL, which text columns cannot store.
func Storable(text string) string { return strings.ReplaceAll(text, "\x00", "\uFFFD") }
