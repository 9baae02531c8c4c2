package registry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is one column of kubectl get. Those with a priority above 0 are shown with -o wide.
type column struct {
	metav1.TableColumnDefinition
	// cell is the value for one object: a string, or an int64 where Type is integer,
	// as JSON has no others.
	cell func(obj runtime.Object, now time.Time) any
}

// text is a column of words.
func text[P runtime.Object](name, description string, cell func(P) string) column {
	return textAt(name, description, func(obj P, _ time.Time) string { return cell(obj) })
}

// textAt is a column of words that depend on the time.
func textAt[P runtime.Object](name, description string, cell func(P, time.Time) string) column {
	return column{
		metav1.TableColumnDefinition{Name: name, Type: "string", Description: description},
		func(obj runtime.Object, now time.Time) any { return cell(obj.(P), now) },
	}
}

// number is a column of numbers.
func number[P runtime.Object](name, description string, cell func(P) int) column {
	return column{
		metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description},
		func(obj runtime.Object, _ time.Time) any { return int64(cell(obj.(P))) },
	}
}

// wide makes columns that only -o wide shows.
func wide(columns ...column) []column {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}

// withName puts the name first, unless the kind has a place of its own for it.
func withName(columns []column) []column {
	for _, c := range columns {
		if c.Format == nameFormat {
			return columns
		}
	}
	return append([]column{nameColumn()}, columns...)
}

// nameFormat is the format of the column with the name.
const nameFormat = "name"

// nameColumn is the name of the object. Its format tells clients to print
// the resource in front of it when they print several.
func nameColumn() column {
	return column{
		metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: nameFormat, Description: "Name of the object, unique among its kind in its namespace."},
		func(obj runtime.Object, _ time.Time) any { return metaOf(obj).GetName() },
	}
}

// ageColumn is the time since the object was created.
func ageColumn() column {
	return column{
		metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: "Time since the object was created."},
		func(obj runtime.Object, now time.Time) any { return since(metaOf(obj).GetCreationTimestamp(), now) },
	}
}

// since is the time that has passed, as kubectl shows it.
func since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// tableConvertor turns objects and lists of one kind into tables.
type tableConvertor struct {
	columns []column
	now     func() time.Time
}

// ConvertToTable implements rest.TableConvertor.
func (c tableConvertor) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	now := c.now()
	add := func(obj runtime.Object) error {
		table.Rows = append(table.Rows, c.row(obj, now))
		return nil
	}
	if meta.IsListType(obj) {
		if err := meta.EachListItem(obj, add); err != nil {
			return nil, fmt.Errorf("convert a list to a table: %w", err)
		}
	} else if err := add(obj); err != nil {
		return nil, err
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		for _, column := range c.columns {
			table.ColumnDefinitions = append(table.ColumnDefinitions, column.TableColumnDefinition)
		}
	}
	return table, nil
}

func (c tableConvertor) row(obj runtime.Object, now time.Time) metav1.TableRow {
	row := metav1.TableRow{Object: runtime.RawExtension{Object: obj}}
	for _, column := range c.columns {
		row.Cells = append(row.Cells, column.cell(obj, now))
	}
	return row
}
