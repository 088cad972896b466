// Package pattern chooses entries of a list by names on a command line.
package pattern

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Choose returns the entries whose name is in names, or matches a pattern there (see
// [path.Match]), in the order of the list. names are separated by commas, and "all" chooses
// every entry. A name that matches no entry is an error.
func Choose[T any](list []T, name func(T) string, names string) ([]T, error) {
	if names == "all" {
		return list, nil
	}
	chosen := make([]bool, len(list))
	for p := range strings.SplitSeq(names, ",") {
		found := false
		for i, entry := range list {
			matches, err := path.Match(p, name(entry))
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", p, err)
			}
			if matches {
				found, chosen[i] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no %q; -list names them all", p)
		}
	}
	i := -1
	return slices.DeleteFunc(slices.Clone(list), func(T) bool { i++; return !chosen[i] }), nil
}
