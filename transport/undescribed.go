package transport

import "github.com/reprise-go/reprise/core"

// Undescribed is for an adapter without one of the facts of [core.Describer]. It embeds
// Undescribed, and declares the methods for which it has an answer.
type Undescribed struct{}

var _ core.Describer = Undescribed{}

// Describe implements [core.Describer]: nothing is known of the connection.
func (Undescribed) Describe() core.TransportInfo { return core.TransportInfo{} }

// Warnings implements [core.Describer]: there are none.
func (Undescribed) Warnings() []string { return nil }

// KeepsGroups implements [core.Describer]: all queues keep groups.
func (Undescribed) KeepsGroups(string) bool { return true }
