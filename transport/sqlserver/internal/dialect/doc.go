// Package dialect has the interface to a database product: its tables, the statements on
// them, and the classes of its errors. Packages postgres and microsoft implement it.
package dialect
