package suite

import (
	"strings"

	"github.com/reprise-go/reprise/core"
)

var middlewareMutants = []mutant{
	{rule: "R53", name: "keeps only the ASCII letters of a header's name", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				var h core.Headers
				for key, value := range out[i].Headers.All() {
					h.Set(strings.Map(func(r rune) rune {
						if r > 127 {
							return -1
						}
						return r
					}, key), value)
				}
				out[i].Headers = h
			}
			return out
		})
	}},
}
