// Package hooks lets packages of this module reach parts of core that its documentation
// does not show: core sets Core, and core/messagekit and core/coretest assert the
// interface that they need. Package core can import it, since it imports none of ours.
package hooks

// Core has the functions as methods. Package core sets it in an init function, before
// those of packages that import core.
var Core any
