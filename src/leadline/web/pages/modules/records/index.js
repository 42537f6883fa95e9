// The view of records: the list of the folder, or one record, or several on one page.
import { recordList } from "./list.js";
import { recordPage } from "./record.js";

export function mount(holder, context) {
  const ids = context.address.id.split(",").filter(Boolean);
  return ids.length ? recordPage(holder, context, ids) : recordList(holder, context);
}
