package microsoft

import (
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Seeing implements dialect.Dialect: without any right on a table, the user does not see it.
func (Dialect) Seeing(dialect.Table) []dialect.Right { return nil }

// Receiving implements dialect.Dialect: only leases need the right to update.
func (Dialect) Receiving(t dialect.Table) []dialect.Right {
	return dialect.RightsOn(t, "select", "delete")
}

// Sending implements dialect.Dialect.
func (Dialect) Sending(t dialect.Table, _ bool) []dialect.Right {
	return dialect.RightsOn(t, "insert")
}

// Grantable implements dialect.Dialect: GRANT is executed in the table's database, and cannot name it.
func (Dialect) Grantable(r dialect.Right) string {
	return bracketed(r.Of.Schema) + "." + bracketed(r.Of.Name)
}

// Missing implements dialect.Dialect: has_perms_by_name is NULL if it does not know. A right on columns counts like
// one on the table.
func (Dialect) Missing(needed []dialect.Right) *sqlexec.Statement {
	var selects []string
	var args []any
	for i, r := range needed {
		object, verb := fmt.Sprintf("@p%d", 2*i+1), fmt.Sprintf("@p%d", 2*i+2)
		selects = append(selects, fmt.Sprintf(`select quotename(user_name()), %d, N'' where has_perms_by_name(%s, N'OBJECT', %s) = 0
	and not exists (select 1 from %s.all_columns as c
		where c.object_id = object_id(%s) and has_perms_by_name(%s, N'OBJECT', %s, c.name, N'COLUMN') = 1)`,
			i, object, verb, catalogViews(r.Of), object, object, verb))
		args = append(args, r.Of.Quoted, strings.ToUpper(r.Verb))
	}
	return sqlexec.Command(strings.Join(selects, "\nunion all\n")+";", args...)
}
