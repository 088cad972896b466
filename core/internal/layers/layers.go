// Package layers lets package configfile put the settings of a second text over those of a
// first by the rules by which core puts those of a message type over the endpoint's.
package layers

// Over returns base with the set fields of own. Both are of the same type: core.Immediate
// or core.Delayed. Package core sets it.
var Over func(own, base any) any
