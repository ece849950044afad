package mysql

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

// Sizes asks InnoDB's statistics, which it keeps for all tables in one place and renews by itself when a tenth of a table
// has changed. Keys are the names that kine's index tells apart.
func (d *database) Sizes(ctx context.Context) (map[string]driver.Size, error) {
	sizes := map[string]driver.Size{}
	err := d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		clear(sizes)
		return s.Rows(ctx, `SELECT o.name,
			(SELECT coalesce(sum(t.clustered_index_size + t.sum_of_other_index_sizes), 0) * @@innodb_page_size
				FROM mysql.innodb_table_stats t WHERE t.database_name = o.name),
			coalesce((SELECT min(i.stat_value) FROM mysql.innodb_index_stats i WHERE i.database_name = o.name AND i.table_name = 'kine'
				AND i.index_name IN ('kine_name_index', 'kine_name_id_index', 'kine_name_prev_revision_uindex') AND i.stat_name = 'n_diff_pfx01'), 0)
			FROM `+own+`.owners o JOIN information_schema.schemata d ON d.schema_name = o.name
			WHERE o.kind = 'schema'`, nil, func(scan func(...any) error) error {
			var schema string
			var size driver.Size
			if err := scan(&schema, &size.Bytes, &size.Keys); err != nil {
				return err
			}
			sizes[schema] = size
			return nil
		})
	})
	return sizes, err
}
